"""Reports of a simulation: a table for terminals, and a page with charts."""
