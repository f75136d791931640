"""What rounds would take on a real network."""
