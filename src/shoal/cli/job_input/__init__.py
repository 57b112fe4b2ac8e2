"""Jobs on the command line: how users describe and select them."""
