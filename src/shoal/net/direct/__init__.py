"""Direct links: one TLS connection per pair of nodes."""
