"""What workers keep for an aggregator to come, and what such a one begins with.

Fail-over: an aggregator that starts knows nothing. Every `checkpoint_syncs` its state
goes to some keepers, without haste, and each worker keeps its contributions until
enough keepers have a state that includes them. A new aggregator loads the latest state
that anybody keeps, and closes again, one after another, the syncs that came after it,
from the contributions that workers kept: the same parts give the same bits, and no sync
is lost. What a dead worker contributed is gone with it; then the outcome differs from
what the others have merged, and theirs counts: it takes their weights, and keeps the
momentum that it came to. If all workers are gone as well, it goes on from the
checkpoint that an earlier life left for itself, which is older.

Plain functions of what all workers say of themselves.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from shoal.train.diloco.events import LoadState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shoal.train.diloco.messages import KeptState, Status


def keepers(
    said: Sequence[Status], count: int, narrow: Collection[str] = ()
) -> tuple[str, ...]:
    """Choose who keeps a checkpoint.

    Workers that keep a later one go on, so that checkpoints stay where they are.
    Those behind `narrow` links need these for what they contribute, and keep nothing
    while there are enough others.
    """
    held = [
        (s.worker in narrow, -s.holds.syncs if s.holds else 1, s.worker) for s in said
    ]
    return tuple(name for _, _, name in nsmallest(count, held))


def safe_syncs(said: Sequence[Status], count: int, *, is_shared: bool) -> int:
    """Say up to where contributions are no longer needed.

    A checkpoint is safe with as many workers as there are to keep it. Without a centre,
    what all have merged is safe with all.
    """
    if is_shared:
        return min((status.merged for status in said if status.loaded), default=0)
    held = sorted((s.holds.syncs for s in said if s.holds), reverse=True)
    enough = min(count, len(said))
    return held[enough - 1] if enough and len(held) >= enough else 0


def agreeing(said: Sequence[Status], far: int) -> list[Status]:
    """Return the most advanced workers, of those that are alike the most."""
    furthest = [status for status in said if status.merged == far]
    checks = [status.check for status in furthest]
    common = max(checks, key=lambda check: (checks.count(check), check), default=0)
    return [status for status in furthest if status.check == common]


def state_to_load(
    said: Sequence[Status], far: int, left: KeptState | None, *, can_replay: bool
) -> LoadState | None:
    """Return what to begin with; None if workers must offer it first.

    `left` is what an earlier aggregator has left. What nobody has merged more than
    needs no replay.
    """
    held = [(s.holds.syncs, s.worker, s.holds.file) for s in said if s.holds]
    if left is not None and (held or left.syncs >= far):
        held.append((left.syncs, "", left.file))
    syncs, worker, file = max(held, default=(-1, "", ""))
    if held and (can_replay or syncs >= far):
        return LoadState("checkpoint", worker, syncs, file)
    if far == 0:
        worker, file = min((s.worker, s.initial) for s in said)
        return LoadState("initial", worker, 0, file)
    for status in agreeing(said, far):
        if status.offered and status.offered.syncs == far:
            return LoadState("weights", status.worker, far, status.offered.file)
    return None
