"""The workers: only they open data and models, and no noise reaches an output except through the
meter.
"""
