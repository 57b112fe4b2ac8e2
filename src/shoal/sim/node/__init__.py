"""One simulated node: its machine, disk, processes and directory."""
