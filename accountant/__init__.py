"""Privacy accounting: prices, admission and the ledger. `accountant.core` is pure."""
