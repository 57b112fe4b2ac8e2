"""Facts that machines are told, and effects that they ask for.

The host performs the effects of one machine in the order in which they were
returned. A durable `Record` is a barrier: nothing that was returned after it, in the
same or a later answer, leaves the node before the record is on disk. A crash
therefore loses a tail of effects and never a record that somebody saw. Only
`StageTask`, `MakeEnvironment` and `StartTask` overtake: they wait for the record of
their own assignment and for no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.core.admission.events import AdmissionEffect, AdmissionEvent
from shoal.core.allocation.events import AllocationEffect, AllocationEvent
from shoal.core.artifacts.events import ArtifactEffect, ArtifactEvent
from shoal.core.calls.events import CallEffect, CallEvent
from shoal.core.channels.events import ChannelEffect, ChannelEvent
from shoal.core.discovery.events import DiscoveryEffect, DiscoveryEvent
from shoal.core.durability.journal import Entry
from shoal.core.environments.events import (
    EnvironmentEffect,
    EnvironmentEvent,
    Kind,
    NeededEnvironment,
)
from shoal.core.forwarding.events import ForwardingEffect, ForwardingEvent
from shoal.core.housekeeping.events import HousekeepingEffect, HousekeepingEvent
from shoal.core.lending.events import LendingEffect, LendingEvent
from shoal.core.mail.events import MailEffect, MailEvent
from shoal.core.proximity.events import ProximityEvent
from shoal.model.ids import (
    Attempt,
    BlobId,
    EnvironmentId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    RequestId,
    TaskId,
)
from shoal.model.job import Input, Job, Task
from shoal.model.kinds import TaskNetwork
from shoal.model.resources import Allocation
from shoal.protocol.messages import (
    AnyMessage,
    Grant,
    Outcome,
    OutputStream,
    PeerAddress,
)

# Events.


class Booted(msgspec.Struct, frozen=True):
    """The host is up: no process of an earlier life is left, the journal is read."""


class PeerConnected(msgspec.Struct, frozen=True):
    """A link to `peer` is up; the handshake proved its id and showed this grant."""

    peer: NodeId
    grant: Grant | None


class PeerLost(msgspec.Struct, frozen=True):
    """The link to `peer` broke or fell silent. A hint: the peer may well be alive."""

    peer: NodeId


class MessageReceived(msgspec.Struct, frozen=True, gc=False):
    """`peer` said this: over its link, or signed by it in gossip."""

    peer: NodeId
    message: AnyMessage


class DeadlineReached(msgspec.Struct, frozen=True):
    """The machine's `next_deadline` has come."""


class WallClockRead(msgspec.Struct, frozen=True):
    """The wall clock reads this now. It may have been set since the last time.

    Grants expire by this clock; everything else goes by the monotonic one.
    """

    wall_s: float


class SizeEstimated(msgspec.Struct, frozen=True):
    """The shoal has about this many nodes, by the density of the DHT."""

    nodes: int


class AddressesChanged(msgspec.Struct, frozen=True):
    """From now on this node can be dialled there."""

    addresses: tuple[str, ...]


class TaskEnded(msgspec.Struct, frozen=True):
    """A started attempt is over; no process of it is left, its devices are free."""

    attempt: Attempt
    outcome: Outcome


class AttemptAdopted(msgspec.Struct, frozen=True):
    """A running attempt, which the host knows by `name`, is another scheduler's now."""

    name: Attempt
    attempt: Attempt


class TaskProgressed(msgspec.Struct, frozen=True):
    """A running attempt told its latest figures."""

    attempt: Attempt
    fraction: float | None = None
    metrics: dict[str, float] = {}


class TaskWrote(msgspec.Struct, frozen=True):
    """A running attempt wrote output, from this offset of the stream."""

    attempt: Attempt
    stream: OutputStream
    offset: int
    data: bytes


class TaskStaged(msgspec.Struct, frozen=True):
    """A started attempt waits for code and data, of which so much is here."""

    attempt: Attempt
    fetched_bytes: int
    total_bytes: int


class TaskSaved(msgspec.Struct, frozen=True):
    """A running attempt left a checkpoint at this path; it is this tree."""

    attempt: Attempt
    tree: BlobId
    path: str = ""


class InputTaken(msgspec.Struct, frozen=True):
    """A user sends a running attempt its standard input from now on."""

    attempt: Attempt


class InputLost(msgspec.Struct, frozen=True):
    """What sends a running attempt its standard input is gone before the end of it."""

    attempt: Attempt
    reason: str


class CacheChanged(msgspec.Struct, frozen=True):
    """The worker has what these marks stand for, the newest first, and no more."""

    marks: tuple[str, ...]


class DriverOpened(msgspec.Struct, frozen=True):
    """A driver of this worker is ready, or something about it has changed.

    Each text says why a promise does not hold; it is empty if the promise holds.
    """

    driver: str
    unconfined: str = ""  # tasks see nothing of the machine that is not theirs
    unlimited: str = ""  # the kernel limits their memory, CPU and processes
    no_internet: str = ""  # a task can be given the internet without the local network
    weaker: tuple[str, ...] = ()  # all that holds less than in full, in sentences


class DrainRequested(msgspec.Struct, frozen=True):
    """Take no new work; what runs has this long to end, then it is preempted."""

    grace_s: float | None  # None: as long as it takes
    lasts: bool = False  # also in later lives of the node, until `DrainEnded`


class DepartureNear(msgspec.Struct, frozen=True):
    """This node ends soon: its kept jobs may go to their keepers at once.

    If it leaves `for_good`, other jobs of which nothing runs go to other schedulers.
    """

    for_good: bool = False


class DrainEnded(msgspec.Struct, frozen=True):
    """Take new work again."""


class JobSubmitted(msgspec.Struct, frozen=True):
    """A client of this node wants this job run. The id was drawn by the client.

    Repeats with the same id get the same answer and change nothing.
    """

    token: int
    job: Job
    grant: Grant | None = None  # of the submitter; None: this node itself
    parent: Attempt | None = None  # of the task that submits it, if one does
    detached: bool = False  # it goes on when that attempt ends


class CancelRequested(msgspec.Struct, frozen=True):
    """A client of this node wants this job, or one task of it, to end."""

    token: int
    job: JobId
    reason: str = ""
    task: TaskId | None = None


class LookedUp(msgspec.Struct, frozen=True):
    """The DHT named these providers. Hints only: stale, forged or wrong ones occur."""

    lookup: int
    providers: tuple[PeerAddress, ...]


class PathMeasured(msgspec.Struct, frozen=True):
    """The round trip to `peer` takes this long."""

    peer: NodeId
    rtt_s: float


class GrantSigned(msgspec.Struct, frozen=True):
    """The host has signed a grant for this node, or could not."""

    peer: NodeId
    request: RequestId
    grant: Grant | None
    reason: str = ""


class GrantChanged(msgspec.Struct, frozen=True):
    """This node shows this grant from now on."""

    grant: Grant


class NeighboursChanged(msgspec.Struct, frozen=True):
    """The overlay was computed anew: from now on these are told what is heard.

    So are as many `strays`, drawn from the other linked peers for each round.
    """

    neighbours: tuple[NodeId, ...]
    strays: int = 0


Event = (
    Booted
    | PeerConnected
    | PeerLost
    | MessageReceived
    | DeadlineReached
    | WallClockRead
    | SizeEstimated
    | AddressesChanged
    | TaskEnded
    | AttemptAdopted
    | TaskProgressed
    | TaskWrote
    | TaskStaged
    | TaskSaved
    | InputTaken
    | InputLost
    | CacheChanged
    | LendingEvent
    | DriverOpened
    | DrainRequested
    | DepartureNear
    | DrainEnded
    | JobSubmitted
    | CancelRequested
    | LookedUp
    | PathMeasured
    | NeighboursChanged
    | GrantSigned
    | GrantChanged
    | DiscoveryEvent
    | ForwardingEvent
    | ArtifactEvent
    | MailEvent
    | AdmissionEvent
    | AllocationEvent
    | EnvironmentEvent
    | CallEvent
    | HousekeepingEvent
    | ChannelEvent
    | ProximityEvent
)

# Effects.


class Send(msgspec.Struct, frozen=True, gc=False):
    """Say this to `peer`, opening a link if there is none; it may get lost."""

    peer: NodeId
    message: AnyMessage


class Publish(msgspec.Struct, frozen=True):
    """Gossip this to the whole shoal."""

    message: AnyMessage


class Spread(msgspec.Struct, frozen=True):
    """Tell this to the neighbours in the overlay, who do not pass it on unchanged."""

    message: AnyMessage


class Disconnect(msgspec.Struct, frozen=True):
    """Cut the link to `peer`."""

    peer: NodeId
    reason: str


class LookUp(msgspec.Struct, frozen=True):
    """Ask the DHT who provides `key`; answered by `LookedUp`."""

    lookup: int
    key: str
    limit: int


class Provide(msgspec.Struct, frozen=True):
    """Tell the DHT that this node provides exactly these keys."""

    keys: tuple[str, ...]


class Record(msgspec.Struct, frozen=True):
    """Append to the journal; a durable one is a barrier (see the module).

    It may wait `within_s` for others, to be synced together with them.
    """

    entry: Entry
    durable: bool = True
    within_s: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """Answer a client of this node. `refused` says why it did not happen."""

    token: int
    job: JobId
    refused: str = ""


class StartTask(msgspec.Struct, frozen=True):
    """Run this attempt on exactly this allocation; answered by `TaskEnded`."""

    attempt: Attempt
    lease: LeaseId
    task: Task
    allocation: Allocation
    gang: tuple[NodeId, ...] = ()
    places: tuple[str, ...] = ()  # where each of the gang can be reached
    checkpoint: BlobId = BlobId("")  # a tree to go on from, if there is one
    checkpoint_path: str = ""
    secrets: dict[str, bytes] = {}  # sealed
    owners: tuple[OwnerId, ...] = ()  # a task is foreign if any of them is
    network: TaskNetwork = "none"  # what the task may reach
    inputs: tuple[Input, ...] = ()  # outputs of tasks that it needs
    environments: tuple[NeededEnvironment, ...] = ()  # all are there when it starts

    @property
    def is_staged(self) -> bool:
        """Whether files must be in its folder before it starts."""
        work, setup = self.task.work, self.environment("setup")
        return bool(work.workdir or self.checkpoint or self.inputs or setup)

    def environment(self, kind: Kind) -> EnvironmentId | None:
        """Return its environment of this kind, if it has one."""
        return next((each.id for each in self.environments if each.kind == kind), None)


class StageTask(msgspec.Struct, frozen=True):
    """Bring code, data and checkpoint of this attempt here, but start nothing.

    Answered by `TaskStaged` on the way, and by one `StagingEnded`. `StopTask` ends it.
    """

    start: StartTask


class MakeEnvironment(msgspec.Struct, frozen=True):
    """Make an environment in the room that an attempt has; start nothing else.

    The setup of a job is run in this network and on top of its Python environment; an
    environment is made with it. Answered by `EnvironmentMade`; `StopTask` of the
    attempt ends it.
    """

    need: NeededEnvironment
    start: StartTask
    network: TaskNetwork = "none"


class StopTask(msgspec.Struct, frozen=True):
    """End this attempt: notice now, kill after the grace. Repeats may shorten it."""

    attempt: Attempt
    grace_s: float


class PauseOutput(msgspec.Struct, frozen=True):
    """Let tasks of this scheduler wait when they write, or go on; not stopped ones."""

    scheduler: NodeId
    paused: bool


class DoubtOutput(msgspec.Struct, frozen=True):
    """The log of an attempt may lack lines: say so and why. Empty: it is whole."""

    task: TaskId
    attempt: Attempt
    reason: str = ""


class SignGrant(msgspec.Struct, frozen=True):
    """Sign a grant with the rights of this one; answered by `GrantSigned`."""

    peer: NodeId  # whose it is
    request: RequestId
    grant: Grant


class KeepGrant(msgspec.Struct, frozen=True):
    """Show this grant from now on, here and in later lives."""

    grant: Grant


class Tell(msgspec.Struct, frozen=True):
    """Tell the other machines of this node a fact; no host ever sees this effect."""

    event: Event


class Show(msgspec.Struct, frozen=True):
    """Pass a task's output or progress on to its watchers."""

    task: Task
    message: AnyMessage


Effect = (
    Send
    | Publish
    | Spread
    | Disconnect
    | LookUp
    | Provide
    | Record
    | Answer
    | StartTask
    | StageTask
    | MakeEnvironment
    | StopTask
    | PauseOutput
    | DoubtOutput
    | ArtifactEffect
    | Show
    | SignGrant
    | KeepGrant
    | Tell
    | DiscoveryEffect
    | ForwardingEffect
    | MailEffect
    | AdmissionEffect
    | AllocationEffect
    | EnvironmentEffect
    | CallEffect
    | HousekeepingEffect
    | ChannelEffect
    | LendingEffect
)

Taker = Callable[[NodeId, Any, float], list[Effect]]
"""What takes in a message of one kind: from whom, what it says, and when it came."""
