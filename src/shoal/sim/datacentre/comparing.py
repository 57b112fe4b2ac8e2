"""All runs of a scenario: each policy with each overlay, on the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

import msgspec

from shoal.model.ids import NodeId
from shoal.sim.datacentre.jobs import Toils, draw_jobs
from shoal.sim.datacentre.results import Picture, Result, summarise
from shoal.sim.datacentre.running import DataCentre, Figures
from shoal.topology.fabric import Fabric

if TYPE_CHECKING:
    from shoal.sim.datacentre.settings import Settings

Progress = Callable[[str, int, int], None]
"""Told which run it is, and how many of its jobs have ended, of how many."""


class Run(msgspec.Struct, frozen=True):
    """One run: what came of it, and what it cost to simulate."""

    result: Result
    picture: Picture
    figures: Figures


class Comparison(msgspec.Struct, frozen=True):
    """Several runs of one scenario."""

    settings: Settings
    fabric: Fabric
    toils: Toils
    runs: list[Run]


def compare(
    settings: Settings, fabric: Fabric, progress: Progress | None = None
) -> Comparison:
    """Run a scenario with each of its policies and overlays."""
    hosts = [NodeId(fabric.nodes[host].name) for host in fabric.hosts]
    toils = draw_jobs(settings, hosts, Random(f"{settings.seed}/jobs"))
    runs = list(_runs(settings, fabric, toils, progress))
    return Comparison(settings, fabric, toils, runs)


def _runs(
    settings: Settings, fabric: Fabric, toils: Toils, progress: Progress | None
) -> Iterator[Run]:
    for policy in settings.policies:
        for overlay in settings.overlays:
            # Parts of a fabric fail in a run, so each has one of its own.
            own = Fabric(fabric.name, fabric.nodes, fabric.links)
            centre = DataCentre(settings, own, toils, policy=policy, overlay=overlay)
            name = f"{policy}, {overlay}"

            def told(ended: int, total: int, name: str = name) -> None:
                if progress is not None:
                    progress(name, ended, total)

            figures = centre.run(told)
            result, picture = summarise(centre, figures.events, figures.digest)
            yield Run(result, picture, figures)
