"""What nodes say to each other: messages, their bytes, and the limits on both."""
