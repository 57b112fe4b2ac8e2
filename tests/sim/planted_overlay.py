"""Planted bugs of what chooses whom load gossip is told."""

from typing import Final

from shoal.core.discovery.gossip_overlay import GossipOverlay, mark_of
from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.events import Effect
from shoal.model.ids import NodeId


def newcomer_not_caught_up(_self: LoadGossip, _peer: NodeId) -> list[Effect]:
    """Tell who is new only what happens from now on."""
    return []


def nothing_strays(_self: LoadGossip, _neighbours: object) -> list[NodeId]:
    """Trust whoever is in the middle of the tree."""
    return []


def all_branches_kept(self: GossipOverlay) -> dict[NodeId, None]:
    """Take each link for an edge of the tree."""
    return dict.fromkeys(self._far)


def one_end_believed(self: GossipOverlay, one: NodeId, other: NodeId) -> int | None:
    """Take a link for real as soon as one of its ends tells of it."""
    there = self._told.get(one, {}).get(mark_of(other))
    back = self._told.get(other, {}).get(mark_of(one))
    told = [each for each in (there, back) if each is not None]
    return max(told) if told else None


OVERLAY_BUGS: Final = (
    ("newcomer not caught up", LoadGossip, "_catch_up", newcomer_not_caught_up),
    ("nothing strays", LoadGossip, "_draw_strays", nothing_strays),
    ("all branches kept", GossipOverlay, "_branches", all_branches_kept),
    ("link of one end believed", GossipOverlay, "_length", one_end_believed),
)
"""A name, and what of what is replaced by what."""

OVERLAY_FOUND_BY: Final = {
    "newcomer not caught up": ("O1", 6),
    "nothing strays": ("O1", 5),
    "all branches kept": ("O2", 12),
    "link of one end believed": ("O1", 32),
}
"""The promise that each breaks, and a seed that shows it."""
