"""Python environments, setups, caches and shared folders of a live worker."""
