"""The simulator: rounds, stores, evaluation, checkpoints, runs."""
