"""The meaning of ledger entries: accounts, admission, hash chain, replay, verification. No
database.
"""
