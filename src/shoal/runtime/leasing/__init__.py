"""Running tasks: attempts, calls of tasks to their worker, and errors."""
