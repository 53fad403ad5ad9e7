"""The cost of one privacy event: units, divergences, composition, calibration, filters."""
