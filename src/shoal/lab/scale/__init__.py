"""Very many nodes that come and go: what it costs each of them."""
