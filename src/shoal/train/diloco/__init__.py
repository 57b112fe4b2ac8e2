"""DiLoCo: workers train apart and average their weights now and then."""
