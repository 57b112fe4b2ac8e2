"""What the book of jobs is made of; large arrays have no record for each task."""
