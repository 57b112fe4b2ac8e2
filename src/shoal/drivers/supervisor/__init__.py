"""Supervisors, which run one attempt at a time, and the node's pool of them."""
