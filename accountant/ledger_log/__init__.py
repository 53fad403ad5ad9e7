"""The log outside the database: every entry of every ledger in files of their own, appended and
synced.

It knows no database. `transactions.ledger_log` says when an entry has to be in it.
"""
