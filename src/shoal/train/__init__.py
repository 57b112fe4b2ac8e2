"""Composite learning: programs that train one model on many machines.

They run as tasks of a job and know nothing of nodes: they talk to each other through
an `exchange`, and to the worker by `shoal.log`. `rounds` is a machine like those of
`core`: it takes one fact and returns what to do, and has neither clock nor chance.
"""

from collections.abc import Mapping
from typing import Final

RECIPES: Final[Mapping[str, str]] = {
    "ddp": "shoal.train.ddp",
    "diloco": "shoal.train.diloco",
    "echo": "shoal.train.echo",
    "eval": "shoal.train.evaluate",
    "pipeline": "shoal.train.pipeline",
    "sweep": "shoal.train.sweep",
    "train": "shoal.train.alone",
}
"""What `recipe: NAME` runs: a module with a main program, which gets the params."""
