"""Private records and public corpora: read, bounded by privacy unit, fingerprinted."""
