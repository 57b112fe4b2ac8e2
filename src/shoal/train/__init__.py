"""Distributed training: recipes and programs that train one model on many machines.

They run as tasks of a job and know nothing of nodes: they talk to each other through
an `exchange`, and to the worker by `shoal.log`. `rounds` is a machine like the ones of
`core`: it takes one fact and returns what to do, and has neither clock nor chance.
"""

from collections.abc import Mapping
from typing import Final

RECIPES: Final[Mapping[str, str]] = {
    "ddp": "shoal.train.gangs.ddp",
    "diloco": "shoal.train.diloco.recipe",
    "echo": "shoal.train.single.echo",
    "eval": "shoal.train.single.evaluate",
    "pipeline": "shoal.train.gangs.pipeline",
    "sweep": "shoal.train.single.sweep",
    "train": "shoal.train.single.alone",
}
"""What `recipe: NAME` runs: a module with a main program, which gets the params."""
