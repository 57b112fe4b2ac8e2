"""What a node measures and sees of its machine, to lend what its owner does not use."""
