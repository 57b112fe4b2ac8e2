"""The worker: offers room, keeps leases, runs tasks, reports their ends."""
