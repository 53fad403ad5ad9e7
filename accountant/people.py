"""People: what administrators and people themselves do to accounts and tokens."""
