"""Bugs of channels to tasks, for `planted`: names, methods and what replaces them."""

from typing import Any, Final

from shoal.core.channels.channels import Channels
from shoal.core.channels.events import PauseChannel
from shoal.core.dispatch.run_states import TaskRun
from shoal.core.events import Effect, InputLost, InputTaken
from shoal.core.leasing.worker import Worker
from shoal.core.membership.members import Admission
from shoal.core.records.records import JobRecord
from shoal.core.scheduling import children
from shoal.core.scheduling.children import Children
from shoal.model.ids import Attempt, NodeId, OwnerId
from shoal.model.job import Job
from shoal.protocol.channels.messages import ChannelBatch, ChannelOpen

_on_channel_open = Channels._on_open
_on_channel_batch = Channels._on_batch
_on_channel_deadline = Channels._on_deadline
_pump_channel = Channels._pump


def channel_for_anybody(self: Channels, peer: NodeId, attempt: Attempt) -> bool:
    """Let every member into every task."""
    return attempt in self._attempts


def channel_of_another_owner(self: Channels, owner: OwnerId) -> bool:
    """Let nodes of every owner ask about jobs."""
    return True


def channel_opened_again(
    self: Channels, peer: NodeId, asked: ChannelOpen, now: float
) -> list[Effect]:
    """Forget which channels there were."""
    self._latest.pop(peer, None)
    return _on_channel_open(self, peer, asked, now)


def lost_items_overlooked(
    self: Channels, peer: NodeId, batch: ChannelBatch, now: float
) -> list[Effect]:
    """Go on after a gap."""
    number = self._numbers.get((peer, batch.channel, not batch.by_opener))
    if number is not None and batch.items:
        stream = self._ends[number].stream
        stream._taken = max(stream._taken, batch.first)
    return _on_channel_batch(self, peer, batch, now)


def items_taken_twice(
    self: Channels, peer: NodeId, batch: ChannelBatch, now: float
) -> list[Effect]:
    """Take repeated items for new ones."""
    number = self._numbers.get((peer, batch.channel, not batch.by_opener))
    if number is not None and batch.items:
        stream = self._ends[number].stream
        stream._taken = min(stream._taken, batch.first)
    return _on_channel_batch(self, peer, batch, now)


def silent_channel_kept(self: Channels, now: float) -> list[Effect]:
    """Wait for the other end for ever."""
    for end in self._ends.values():
        end.gives_up_at = now + 1e9
    return _on_channel_deadline(self, now)


def writer_never_paused(self: Channels, end: Any, now: float) -> list[Effect]:  # noqa: ANN401
    """Take in whatever the host has, however slow the other end is."""
    effects = _pump_channel(self, end, now)
    return [effect for effect in effects if not isinstance(effect, PauseChannel)]


def revoked_node_gets_items(self: Channels, end: Any, now: float) -> str:  # noqa: ANN401
    """Send without asking the roster."""
    return ""


def calls_after_the_end(self: Children, worker: Admission, attempt: Attempt) -> str:
    """Let a worker speak for tasks that it ran, or that others run."""
    return ""


def calls_of_another_owner(self: Children, run: TaskRun, worker: Admission) -> bool:
    """Let workers of every owner speak for their tasks."""
    return True


def child_outlives_its_parent(self: Children, record: JobRecord) -> bool:
    """Let the jobs of a task go on."""
    return False


def child_of_another_owner(job: Job, parent: JobRecord) -> Job:
    """Let a task say whose its jobs are, and how urgent."""
    return job


def cut_input_overlooked(self: Worker, event: InputTaken | InputLost) -> list[Effect]:
    """Let a task go on with the part of its input that came."""
    return []


CHANNEL_BUGS: Final = (
    ("cut input overlooked", Worker, "_on_input", cut_input_overlooked),
    ("calls after the end", Children, "refusal", calls_after_the_end),
    ("calls of another owner", Children, "_is_of", calls_of_another_owner),
    ("child outlives its parent", Children, "_ends", child_outlives_its_parent),
    ("child of another owner", children, "_clamped", child_of_another_owner),
    ("channel for anybody", Channels, "_is_of", channel_for_anybody),
    ("channel of another owner", Channels, "_is_ours", channel_of_another_owner),
    ("channel opened again", Channels, "_on_open", channel_opened_again),
    ("lost items overlooked", Channels, "_on_batch", lost_items_overlooked),
    ("items taken twice", Channels, "_on_batch", items_taken_twice),
    ("silent channel kept", Channels, "_on_deadline", silent_channel_kept),
    ("writer never paused", Channels, "_pump", writer_never_paused),
    ("revoked node gets items", Channels, "_void", revoked_node_gets_items),
)
