"""API calls between nodes of simulated worlds: who asks, and the promises."""
