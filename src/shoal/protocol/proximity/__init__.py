"""What nodes say to each other about the network between them."""
