"""The books: prices, admission and the ledger. `accountant.core` is pure; the rest speaks to PostgreSQL."""
