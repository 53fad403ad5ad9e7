"""Embedding models, nearest neighbours and clusters."""
