"""Members of simulated worlds that measure the network, and the promises."""
