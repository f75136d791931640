"""Hub methods over Flower."""
