"""Commands that join a running task: programs, ports and notebooks."""
