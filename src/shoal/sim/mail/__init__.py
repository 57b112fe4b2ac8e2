"""Letters between tasks of simulated worlds: who writes, and the promises."""
