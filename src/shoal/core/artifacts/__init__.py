"""Code, data, outputs and checkpoints that travel with tasks."""
