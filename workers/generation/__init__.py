"""Texts written from public prompts, without a private record in sight."""
