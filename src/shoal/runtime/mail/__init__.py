"""Messages between the tasks of one job."""
