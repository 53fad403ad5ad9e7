"""Tries to sign in: how many are allowed, and the log of them all."""
