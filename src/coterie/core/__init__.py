"""What everything else stands on: errors, options, vectors, randomness, files, the byte bill."""
