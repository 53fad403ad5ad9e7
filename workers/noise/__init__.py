"""Noise, and the meter through which alone a mechanism gets any."""
