"""Code, data and outputs in simulated worlds, the trees they are, and the promises."""
