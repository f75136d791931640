"""Tuning of methods on validation data."""
