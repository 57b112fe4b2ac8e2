"""Code, data, outputs, checkpoints and secrets that travel with jobs."""
