"""Sandbox tasks: bubblewrap, mounts, system calls and network."""
