"""The memory that training takes, from what a spec says of the model."""
