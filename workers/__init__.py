"""The workers: they alone open data and models, and nothing noisy leaves them but through the meter."""
