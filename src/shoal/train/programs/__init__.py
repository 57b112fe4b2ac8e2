"""Programs to copy and change. Each is flat, and runs alone or as tasks of a job."""
