"""What a node answers about its allocations."""
