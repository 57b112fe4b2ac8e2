"""Members of simulated worlds that find each other, and the promises."""
