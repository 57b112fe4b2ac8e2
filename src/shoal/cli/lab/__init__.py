"""Commands of the laboratory: simulation and traces."""
