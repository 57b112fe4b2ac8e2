"""Jobs that are kept by several nodes, schedulers that are lost, and the promises."""
