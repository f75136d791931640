"""Hub methods as a plain Flower app."""
