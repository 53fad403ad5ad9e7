"""The catalogue of what jobs may name: datasets, models, public corpora and uploaded files."""
