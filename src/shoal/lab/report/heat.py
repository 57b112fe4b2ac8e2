"""The heat map of a fabric: how busy each link and each host was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from shoal.lab.report.charts import WIDTH
from shoal.lab.report.formatting import share
from shoal.lab.report.svg import element, number, picture, text, title
from shoal.topology.routes import Routes

if TYPE_CHECKING:
    from shoal.lab.datacentre.results import RunResult
    from shoal.topology.fabric import Fabric

ANCHORS_MAX: Final = 40
"""Switches with hosts that a picture shows; of more, the first of them."""

HOSTS_MAX: Final = 48  # squares under one switch
TIER_HEIGHT: Final = 130.0
TOP: Final = 40.0

Place = tuple[float, float]


def heat(fabric: Fabric, result: RunResult) -> str:
    """Return the fabric: switches, links by how busy they were, hosts likewise."""
    routes = Routes(fabric)
    under: dict[int, list[int]] = {}
    for host in fabric.hosts:
        under.setdefault(routes.anchor(host), []).append(host)
    anchors = list(under)[:ANCHORS_MAX]
    shown = _shown(fabric, anchors)
    tiers = sorted({fabric.nodes[node].tier for node in shown}, reverse=True)
    in_tiers = len(tiers) > 1
    places = _in_tiers(fabric, shown, tiers) if in_tiers else _in_a_circle(shown)
    floor = max(y for _, y in places.values()) if places else TOP
    parts = [_links(fabric, result, places)]
    used = dict(zip(fabric.hosts, result.hosts_used, strict=True))
    most = max(len(under[anchor]) for anchor in anchors)
    width = (WIDTH - 40) / len(anchors) if in_tiers else 96.0
    side, across = _square(width, min(most, HOSTS_MAX))
    for anchor in anchors:
        x, y = places[anchor]
        parts.append(_hosts(fabric, under[anchor], used, (x, y + 26), side, across))
    parts += [_switch(fabric, node, places[node], len(shown)) for node in shown]
    rows = math.ceil(min(most, HOSTS_MAX) / across)
    height = floor + 40 + rows * (side + 2)
    return picture(WIDTH, height, "".join(parts), "the fabric and how busy it was")


def shown_of(fabric: Fabric) -> str:
    """Say how much of a large fabric the picture shows."""
    routes = Routes(fabric)
    anchors = len({routes.anchor(host) for host in fabric.hosts})
    if anchors <= ANCHORS_MAX:
        return ""
    return f"The first {ANCHORS_MAX} of {anchors} leaves."


def _shown(fabric: Fabric, anchors: list[int]) -> list[int]:
    """Return the switches that are drawn: those with hosts, and all above."""
    chosen = dict.fromkeys(anchors)
    base = max((fabric.nodes[anchor].tier for anchor in anchors), default=0)
    above = [
        number
        for number, node in enumerate(fabric.nodes)
        if node.kind == "switch" and node.tier > base
    ]
    loose = [
        number
        for number, node in enumerate(fabric.nodes)
        if node.kind == "switch" and node.tier <= base and number not in chosen
    ]
    every = [*above[:ANCHORS_MAX], *anchors]
    return every if len(loose) > ANCHORS_MAX or above else [*every, *loose]


def _in_tiers(fabric: Fabric, shown: list[int], tiers: list[int]) -> dict[int, Place]:
    places: dict[int, Place] = {}
    for row, tier in enumerate(tiers):
        nodes = [node for node in shown if fabric.nodes[node].tier == tier]
        for column, node in enumerate(nodes):
            x = 20 + (WIDTH - 40) * (column + 0.5) / len(nodes)
            places[node] = (x, TOP + row * TIER_HEIGHT)
    return places


def _in_a_circle(shown: list[int]) -> dict[int, Place]:
    radius = 150.0 if len(shown) > 1 else 0.0
    return {
        node: (
            WIDTH / 2 + 2 * radius * math.sin(2 * math.pi * place / len(shown)),
            TOP + radius - radius * math.cos(2 * math.pi * place / len(shown)),
        )
        for place, node in enumerate(shown)
    }


def _links(fabric: Fabric, result: RunResult, places: dict[int, Place]) -> str:
    drawn: list[tuple[float, str]] = []
    for number_, (a, b) in enumerate(fabric.ends):
        if a not in places or b not in places:
            continue
        use = result.links[number_]
        (x1, y1), (x2, y2) = places[a], places[b]
        line = element(
            "line",
            title(f"{use.name}: {share(use.mean)} busy"),
            x1=x1,
            y1=y1,
            x2=x2,
            y2=y2,
            class_="cable",
            style=f"--heat:{number(min(1.0, use.mean) * 100)}%",
            stroke_width=1.2 + 4.5 * min(1.0, use.mean),
        )
        drawn.append((use.mean, line))
    # The hot ones lie on top.
    return "".join(line for _, line in sorted(drawn))


def _square(width: float, hosts: int) -> tuple[float, int]:
    """Return the side of the squares, and how many stand side by side."""
    across = max(1, min(hosts, 8 if width > 90 else 4))
    side = min(20.0, (width - 10) / across - 2)
    return max(2.0, side), across


def _hosts(
    fabric: Fabric,
    hosts: list[int],
    used: dict[int, float],
    place: Place,
    side: float,
    across: int,
) -> str:
    parts: list[str] = []
    left = place[0] - min(across, len(hosts)) * (side + 2) / 2
    for n, host in enumerate(hosts[:HOSTS_MAX]):
        parts.append(
            element(
                "rect",
                title(f"{fabric.nodes[host].name}: {share(used[host])} in use"),
                x=left + (n % across) * (side + 2),
                y=place[1] + n // across * (side + 2),
                width=side,
                height=side,
                rx=2.0,
                class_="host",
                style=f"--heat:{number(min(1.0, used[host]) * 100)}%",
            )
        )
    return "".join(parts)


def _switch(fabric: Fabric, node: int, place: Place, count: int) -> str:
    x, y = place
    name = fabric.nodes[node].name
    half = 26.0 if count <= 24 else 14.0
    words = name if count <= 24 else name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return element(
        "rect",
        title(name),
        x=x - half,
        y=y - 11,
        width=2 * half,
        height=22.0,
        rx=5.0,
        class_="switch",
    ) + text(x, y + 4, words, class_="name", text_anchor="middle")
