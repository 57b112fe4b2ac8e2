"""Letters between the tasks of one job."""
