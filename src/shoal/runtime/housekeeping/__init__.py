"""Files of removed jobs: measured, and deleted."""
