"""Robust merges (and, to come, attacks)."""
