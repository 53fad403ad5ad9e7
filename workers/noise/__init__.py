"""Noise, and the meter, which is a mechanism's only source of it."""
