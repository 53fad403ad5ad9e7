"""Metrics of synthetic texts against public or consented texts, each with its settings.

A metric against private records would be a release. Nothing here opens a dataset: texts come from
published outputs, references from registered corpora, models from local folders. Two figures of the
same name with different settings are not comparable, so the settings accompany every figure.
"""
