"""Finding other nodes, and being found."""
