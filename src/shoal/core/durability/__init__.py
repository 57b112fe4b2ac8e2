"""What outlives a crash: the journal, the barrier, and what a restart does."""
