"""What a worker makes once for many tasks: Python environments, and setups of jobs."""
