"""Asks engines such as Slurm for workers, as the allocator decides."""
