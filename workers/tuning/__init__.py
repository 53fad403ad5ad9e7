"""Choosing parameters from public data: what no price forbids and no private record may decide."""
