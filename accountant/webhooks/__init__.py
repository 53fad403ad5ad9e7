"""Webhooks: their registration and the delivery of what happened."""
