"""Links are loaded by the gangs that talk over them, whoever tells of these."""

from __future__ import annotations

from random import Random

import pytest

from shoal.model.ids import NodeId
from shoal.policy.table.domains import DomainPath
from shoal.policy.table.link_load import LinkLoad

NODES = [NodeId(f"w{number}") for number in range(8)]


def counted(
    paths: dict[NodeId, DomainPath], gangs: dict[NodeId, list[str]]
) -> dict[DomainPath, int]:
    """Count anew which gangs talk over the uplinks of each domain."""
    found: dict[DomainPath, int] = {}
    for mark in sorted({mark for marks in gangs.values() for mark in marks}):
        at = [paths[node] for node in paths if mark in gangs.get(node, ())]
        for depth in (1, 2, 3):
            domains = {path[:depth] for path in at}
            for domain in domains if len(domains) > 1 else ():
                found[domain] = found.get(domain, 0) + 1
    return found


@pytest.mark.parametrize("seed", range(20))
def test_counts_that_follow_changes_equal_counts_made_anew(seed: int) -> None:
    rng, links = Random(seed), LinkLoad()
    paths: dict[NodeId, DomainPath] = {}
    told: dict[NodeId, tuple[str, ...]] = {}
    ours: list[tuple[NodeId, str]] = []
    for _ in range(200):
        node = rng.choice(NODES)
        match rng.randrange(5):
            case 0:
                paths[node] = tuple(f"{depth}{rng.randrange(2)}" for depth in range(3))
                links.place(node, paths[node])
            case 1:
                paths.pop(node, None)
                told.pop(node, None)
                links.forget(node)
            case 2:
                told[node] = tuple(rng.choices("abcd", k=rng.randrange(4)))
                links.tell(node, told[node])
            case 3:
                ours.append((node, rng.choice("abcd")))
                links.add(*ours[-1])
            case _ if ours:
                links.remove(*ours.pop(rng.randrange(len(ours))))
            case _:
                pass
        gangs = {
            each: [*told.get(each, ()), *(mark for at, mark in ours if at == each)]
            for each in NODES
        }
        assert links.crossing == counted(paths, gangs)
        for mark in "abcd":
            alone = {
                each: [m for m in marks if m == mark] for each, marks in gangs.items()
            }
            assert sorted(links.of(mark)) == sorted(counted(paths, alone))
