"""Real federations: identities, and what runs between machines."""
