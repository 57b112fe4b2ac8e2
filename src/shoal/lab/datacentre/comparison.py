"""Run a scenario: every policy with every overlay, on the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

import msgspec

from shoal.lab.datacentre.data_centre import DataCentre, RunCost
from shoal.lab.datacentre.jobs import DrawnJobs, draw_jobs
from shoal.lab.datacentre.recorder import Bar
from shoal.lab.datacentre.results import RunResult, summarise
from shoal.model.ids import NodeId
from shoal.topology.fabric import Fabric

if TYPE_CHECKING:
    from shoal.lab.datacentre.settings import ScenarioSettings

Progress = Callable[[str, int, int], None]
"""Told which run it is, and how many of its jobs have ended, of how many."""


class ScenarioRun(msgspec.Struct, frozen=True):
    """One run: its results, its bars for charts, and what it cost to simulate."""

    result: RunResult
    bars: tuple[Bar, ...]
    figures: RunCost


class Comparison(msgspec.Struct, frozen=True):
    """Several runs of one scenario."""

    settings: ScenarioSettings
    fabric: Fabric
    drawn: DrawnJobs
    runs: list[ScenarioRun]


def compare(
    settings: ScenarioSettings, fabric: Fabric, progress: Progress | None = None
) -> Comparison:
    """Run a scenario with each of its policies and overlays."""
    hosts = [NodeId(fabric.nodes[host].name) for host in fabric.hosts]
    drawn = draw_jobs(settings, hosts, Random(f"{settings.seed}/jobs"))
    runs = list(_runs(settings, fabric, drawn, progress))
    return Comparison(settings, fabric, drawn, runs)


def _runs(
    settings: ScenarioSettings,
    fabric: Fabric,
    drawn: DrawnJobs,
    progress: Progress | None,
) -> Iterator[ScenarioRun]:
    for policy in settings.policies:
        for overlay in settings.overlays:
            # Parts of a fabric fail in a run, so each has one of its own.
            own = Fabric(fabric.name, fabric.nodes, fabric.links)
            centre = DataCentre(settings, own, drawn, policy=policy, overlay=overlay)
            name = f"{policy}, {overlay}"

            def told(ended: int, total: int, name: str = name) -> None:
                if progress is not None:
                    progress(name, ended, total)

            figures = centre.run(told)
            result = summarise(centre, figures.events, figures.digest)
            yield ScenarioRun(result, tuple(centre.recorder.bars), figures)
