"""`shoal slurm`: what scripts written for Slurm call, on top of a shoal.

`options` reads what `#SBATCH` lines and `sbatch` say; `batch` makes a job of it,
`script` what its task runs. `ledger` maps Slurm's numbers to jobs, durably.
"""
