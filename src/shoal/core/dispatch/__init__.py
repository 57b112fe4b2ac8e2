"""Running tasks on leases that were won: assignments, ends, retries."""
