"""Recipes whose tasks need no peers: train, eval, sweep, echo."""
