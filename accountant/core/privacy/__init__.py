"""What one privacy event costs: units, divergences, composition, calibration, filters."""
