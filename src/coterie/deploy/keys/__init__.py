"""An authority of one's own: certificates, registration, revocation."""
