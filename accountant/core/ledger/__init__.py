"""What an entry means: accounts, admission, the hash chain, replay and verification. No database."""
