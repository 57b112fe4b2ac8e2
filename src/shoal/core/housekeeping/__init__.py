"""What is left of jobs: how long it is kept, who removes it, and what was used."""
