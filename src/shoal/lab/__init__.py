"""The laboratory: simulated data centres, and replays of real traces.

Nothing live imports it, and it imports nothing live: it runs the same machines (`core`)
and policies (`policy`) as a node, in virtual time. Where to look:

- `datacentre`: whole nodes on a modelled fabric, message by message. `scenario` is the
  file people write, `data_centre` runs one world of it, `results` has the figures.
  Commands: `shoal sim`.
- `replay`: long traces against policies and queues, without messages. `engine` has the
  event loop; `clusters`, `queues` and rules plug into it. `protocols` holds what
  published simulators do differently, `reproduction` compares with their results.
  Commands: `shoal sim traces`, `shoal sim reproduce`.
- `traces`: readers of the public trace formats, and generators.
- `report`: results as a table, or as one HTML page with charts.
"""
