"""A job as people write it, and what it means."""
