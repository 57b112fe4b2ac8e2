"""The queue: which tasks are next, which may overtake, which are displaced."""
