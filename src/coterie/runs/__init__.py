"""Experiments, and the folders they are run into."""
