"""Decide who runs what: queue, filter, rank, explain.

- `queueing`: which group of tasks is next, which may overtake, which is displaced;
- `filters`, then `ranking`: which workers could run a task, and which suits it best;
- `table`: the known workers, laid out so that one decision takes microseconds;
- `placement.place` puts these together; `interface` says what a policy must do;
- `explanation`, `planning`: why a task waits, and where it would go.
"""
