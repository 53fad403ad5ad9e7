"""A transparency log of ledger entries: a Merkle tree in tiles, signed checkpoints, and their
witnesses.
"""
