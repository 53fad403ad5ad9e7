"""The log outside the database: every entry of every ledger in files or objects of their own,
durable before anybody is answered.

It knows no database. `transactions.ledger_log` says when an entry has to be in it.
"""
