"""Messages between nodes: nouns, idempotent, with durations instead of points in time.

Every message may be lost, repeated, reordered or forged. Handling one twice is the
same as once, and each answer names what it answers. Tags and field names are wire
format: never rename or reuse one, and give a new field a default.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from shoal.model.ids import (
    Attempt,
    BlobId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    RequestId,
)
from shoal.model.job import Input, Scalar, Task
from shoal.model.resources import Allocation, Capacity, Profile
from shoal.model.text.bounds import (
    DEVICES_MAX,
    INPUTS_MAX,
    OUTPUTS_MAX,
    SECRETS_MAX,
    Amount,
    BelowPath,
    Count,
    Milli,
    Name,
    Seconds,
    Text,
)
from shoal.protocol import admission
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.call_batches import ToLanes
from shoal.protocol.channels.messages import ToChannels
from shoal.protocol.forwarding import ToApi
from shoal.protocol.grants import Grant as Grant  # noqa: PLC0414 - Exported.
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.grants import Role as Role  # noqa: PLC0414
from shoal.protocol.limits import (
    AHEAD_MAX,
    HOLDERS_MAX,
    LEASES_MAX,
    LOSSES_MAX,
    METRICS_MAX,
    NEIGHBOURHOOD_MAX,
    PEERS_MAX,
    RUMOURS_MAX,
    VALUES_MAX,
    WANTS_MAX,
    Addresses,
    Drivers,
    ExitCode,
    Farness,
    Fraction,
    Gang,
    GangMarks,
    Hashes,
    Hops,
    Leases,
    Mark,
    Piece,
    Places,
    Priority,
    Requests,
    Sealed,
    Secret,
    Signature,
    Version,
    Weaknesses,
)
from shoal.protocol.mail import Mail, MailReceipt
from shoal.protocol.message import Message
from shoal.protocol.proximity.messages import ToProximity
from shoal.protocol.succession.messages import (
    Adoption,
    Members,
    SchedulerLoad,
    ToKeeper,
)

PROTOCOL_VERSION = 1

# Membership: who somebody is, and what they may do.


class Revocation(Message, frozen=True, tag="revocation"):
    """Grants of this node up to this serial are void. Signed like a grant."""

    node: NodeId
    shoal: Name
    serial: Count
    signer: NodeId = NodeId("")
    delegation: Grant | None = None
    signature: Signature = b""


class Hello(Message, frozen=True, tag="hello"):
    """First message on a link: the sender's versions, incarnation and grant.

    `generation` rises with every restart; messages of an older one are void.
    """

    versions: tuple[Version, Version] = (PROTOCOL_VERSION, PROTOCOL_VERSION)
    generation: Count = 0
    name: Name = ""
    grant: Grant | None = None


# Discovery: who has room, and for whom.


class Want(msgspec.Struct, frozen=True):
    """`count` tasks of this profile look for workers."""

    profile: Profile
    count: Count


class Announcement(Message, frozen=True, tag="announcement"):
    """Gossip: this scheduler has unmet demand. `seq` counts repeats, from 0."""

    scheduler: NodeId
    addresses: Addresses = ()
    epoch: Count = 0
    seq: Count = 0
    wants: Annotated[tuple[Want, ...], Meta(max_length=WANTS_MAX)] = ()
    grant: Grant | None = None


class Inquiry(Message, frozen=True, tag="inquiry"):
    """What do you have? Sent to those a DHT record named: the record is only a hint."""

    request: RequestId


class Load(msgspec.Struct, frozen=True, gc=False):
    """What is free on a worker now; `active` counts its tasks."""

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    disk_bytes: Amount = 0
    # Free share and free bytes of each of its devices, in order.
    gpu_milli: Annotated[tuple[Milli, ...], Meta(max_length=DEVICES_MAX)] = ()
    gpu_memory: Annotated[tuple[Amount, ...], Meta(max_length=DEVICES_MAX)] = ()
    active: Count = 0
    draining: bool = False


class Rank(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Total order of demands, the larger the better.

    The age is fixed when a round of negotiation begins, so every worker compares
    the same numbers; node and request make ties impossible.
    """

    priority: Priority
    age_s: Seconds
    node: NodeId
    request: RequestId


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A demand for which a worker keeps its room: worse ranks get none of that."""

    rank: Rank
    profile: Profile
    count: Count


Ahead: TypeAlias = Annotated[tuple[Waiting, ...], Meta(max_length=AHEAD_MAX)]


class Inventory(Message, frozen=True, tag="inventory"):
    """A worker's capacity and what is free of it. The latest `seq` counts."""

    epoch: Count
    seq: Count
    capacity: Capacity
    load: Load
    drivers: Drivers = ()
    warm: Hashes = ()  # marks of what is cached there (`model.caches`)
    addresses: Addresses = ()  # where it can be dialled
    networked: Drivers | None = None  # those with a network; None: all of them
    terms: Text = ""  # why the receiver is not offered all
    weaker: Weaknesses = ()  # promises that do not hold in full
    gangs: GangMarks = ()  # marks of those on several workers that run there, too
    ahead: Ahead = ()  # the best of those who wait there


class InventoryChanged(Message, frozen=True, tag="inventory-changed"):
    """The load of a worker whose inventory the receiver has.

    It must be one from `since` on: what an older one says is no longer so.
    """

    epoch: Count
    seq: Count
    load: Load
    since: Count = 0
    gangs: GangMarks = ()  # marks of those on several workers that run there, too
    ahead: Ahead = ()  # the best of those who wait there


class LoadDigest(Message, frozen=True, tag="load-digest"):
    """Gossip between neighbours: a hint about the room on one worker."""

    node: NodeId
    epoch: Count
    seq: Count
    load: Load


class Rumour(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one worker said of its room, in short, and how often it may be passed on."""

    node: NodeId
    epoch: Count
    seq: Count
    hops: Hops = 0  # how many more nodes may hear of it
    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    gpus: Count = 0  # devices that are wholly free
    gpu_milli: Milli = 0  # the largest share that is free of one device
    gpu_memory_bytes: Amount = 0  # the most memory that is free on one device
    draining: bool = False


class LoadDigests(Message, frozen=True, tag="load-digests"):
    """Gossip between neighbours: where there may be room. Hearsay.

    Each is signed by its worker, so that nobody can hide it by saying that it is full.
    The receiver may ask the workers named; only their own answer counts.
    """

    rumours: Annotated[tuple[Rumour, ...], Meta(max_length=RUMOURS_MAX)]
    # Of the workers, in order, over all but the hops; none of one that signs nothing.
    signatures: Annotated[tuple[Signature, ...], Meta(max_length=RUMOURS_MAX)] = ()


class Neighbourhood(Message, frozen=True, tag="neighbourhood"):
    """Whom the sender is linked to, and about how far away each is.

    From it the receiver chooses whom it tells what it hears of load. Peers are named by
    marks, hashes of four bytes; a link counts only if its other end tells of it, too.
    """

    links: Annotated[
        tuple[tuple[Mark, Farness], ...], Meta(max_length=NEIGHBOURHOOD_MAX)
    ] = ()


# Negotiation: from a demand to a lease.


class Demand(Message, frozen=True, tag="demand"):
    """Could you run `count` tasks of this profile, now? Repeats get the same answer."""

    request: RequestId
    profile: Profile
    count: Count
    rank: Rank
    driver: Name = "process"
    preempt: bool = False
    preemptible: bool = True
    owner: OwnerId = OwnerId("")
    grant: Grant | None = None
    wait_for_s: Seconds = 0.0  # if there is no room, let no worse rank overtake it
    network: bool = False  # whether the tasks use the network
    # Rather these devices than others, if they are free.
    devices: Annotated[tuple[Name, ...], Meta(max_length=DEVICES_MAX)] = ()
    claim: bool = False  # there is no room, the sender knows: only remember it


class Loss(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What tasks of one priority would have to do again, gangs as a whole."""

    priority: Priority
    work: Amount  # in thousandths of CPUs, by seconds


class Offer(Message, frozen=True, tag="offer"):
    """Room for one task per lease is held for the receiver, for this long.

    `displaces` counts the leases that end if this offer is committed, and `destroys`
    says what would be lost with them, the highest priority first.
    """

    request: RequestId
    leases: Leases
    valid_for_s: Seconds
    displaces: Count = 0
    destroys: Annotated[tuple[Loss, ...], Meta(max_length=LOSSES_MAX)] = ()


class Refusal(Message, frozen=True, tag="refusal"):
    """Definite no: it did not and will not happen, for the reason given in numbers."""

    request: RequestId = RequestId("")
    leases: Leases = ()
    attempt: Attempt | None = None
    reason: Text = ""
    retry_in_s: Seconds | None = None


class Commit(Message, frozen=True, tag="commit"):
    """These leases are mine now; keep them this long between renewals."""

    request: RequestId
    leases: Leases
    lease_s: Seconds


class Committed(Message, frozen=True, tag="committed"):
    """These leases are the receiver's until they expire unrenewed or end."""

    request: RequestId
    leases: Leases


class Release(Message, frozen=True, tag="release"):
    """These leases are no longer needed. Tasks on them are stopped.

    Nor does anybody wait for what these `requests` were refused: keep no room for them.
    """

    leases: Leases
    requests: Requests = ()


class Withdrawal(Message, frozen=True, tag="withdrawal"):
    """These uncommitted offers no longer stand."""

    leases: Leases
    reason: Text = ""


class SavedAge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How long ago the gang that runs on a lease left a checkpoint that is kept."""

    lease: LeaseId
    age_s: Seconds


class Renew(Message, frozen=True, tag="renew"):
    """Keep these leases. The receiver counts the time from when it gets this.

    Often one task of a gang saves for all: `saved` tells the workers of the others.
    """

    leases: Leases
    lease_s: Seconds
    saved: Annotated[tuple[SavedAge, ...], Meta(max_length=LEASES_MAX)] = ()


class Occupied(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live lease and the attempt that runs on it, if one does."""

    lease: LeaseId
    attempt: Attempt | None = None


class Renewed(Message, frozen=True, tag="renewed"):
    """These leases live on, with what runs on them. Others asked for are over."""

    leases: Annotated[tuple[Occupied, ...], Meta(max_length=LEASES_MAX)]
    gone: Leases = ()


class Preemption(Message, frozen=True, tag="preemption"):
    """This lease ends in favour of another; its task has this long to check-point."""

    lease: LeaseId
    grace_s: Seconds
    reason: Text = ""


# Work: assignments and what became of them.


class Assignment(Message, frozen=True, tag="assignment"):
    """Run this on that lease. Several may come for one lease, one after another.

    `gang` names the node of every rank, when there is more than one, and `places`
    where each of them can be reached, if that is known of all. `checkpoint` is what
    an earlier attempt left, and `checkpoint_path` where it was. `secrets` are sealed
    to the receiver's key, for this attempt. `after` is the attempt before it on its
    lease: if that still runs, this one waits for its end. `inputs` are what the tasks
    that it needs have left, laid into the work directory in this order. `receipts`
    says that its output will be acknowledged. The job of the task is kept by `members`,
    if there are any, and the sender schedules it in this `term`.
    """

    lease: LeaseId
    attempt: Attempt
    task: Task
    gang: Gang = ()
    places: Places = ()
    checkpoint: BlobId = BlobId("")
    checkpoint_path: BelowPath = ""
    secrets: Annotated[dict[Name, Sealed], Meta(max_length=SECRETS_MAX)] = {}
    after: Attempt | None = None
    inputs: Annotated[tuple[Input, ...], Meta(max_length=INPUTS_MAX)] = ()
    receipts: bool = False
    term: Count = 0
    members: Members = ()


class Cancel(Message, frozen=True, tag="cancel"):
    """Stop this attempt, with grace, or never start it; it ends in a report.

    With `unless_started` it goes on if it runs already, and that is said.
    """

    attempt: Attempt
    lease: LeaseId
    grace_s: Seconds = 0.0
    unless_started: bool = False


class Started(Message, frozen=True, tag="started"):
    """The attempt runs, on exactly this."""

    attempt: Attempt
    lease: LeaseId
    allocation: Allocation = Allocation()


class Progress(Message, frozen=True, tag="progress"):
    """Latest figures of an attempt; any of these may be lost.

    A metric may be NaN or infinite: that a loss diverged is news.
    """

    attempt: Attempt
    seq: Count
    fraction: Fraction | None = None
    metrics: Annotated[dict[Name, float], Meta(max_length=METRICS_MAX)] = {}


OutputStream = Literal["stdout", "stderr", "metrics"]
"""What an attempt wrote, and what it reported (`model.metric_lines`)."""


class OutputPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a message stands among all pieces of output that its sender has for you.

    Pieces are numbered in each life of a worker, for each scheduler. Those before
    `held` were taken or will never come. A piece has this `number`; a report comes
    after all pieces with lower ones.
    """

    epoch: Count
    held: Count
    number: Count


class Output(Message, frozen=True, tag="output"):
    """A piece of what an attempt wrote, from this offset of the stream.

    With a place it is sent until an `OutputReceipt` says that it was taken.
    """

    attempt: Attempt
    stream: OutputStream
    offset: Count
    data: Piece
    place: OutputPlace | None = None


class OutputReceipt(Message, frozen=True, tag="output-receipt"):
    """All pieces of your output with lower numbers were taken.

    `gap` says that a later one came, or the end of an attempt: send the next one again.
    """

    epoch: Count
    taken: Count
    gap: bool = False


class Staging(Message, frozen=True, tag="staging"):
    """The attempt has not started yet: its worker fetches what it needs, or has it now.

    Any of these may be lost. When both amounts are the same, all is there. `note` says
    what else it waits for; `made` what was made for it, and how long that took.
    """

    attempt: Attempt
    seq: Count
    fetched_bytes: Amount
    total_bytes: Amount
    note: Text = ""
    made: Text = ""


class Checkpoint(Message, frozen=True, tag="checkpoint"):
    """The attempt can go on elsewhere from this tree, which the sender holds."""

    attempt: Attempt
    seq: Count
    tree: BlobId
    path: BelowPath = ""  # where it is, below the work directory


ALL_OUTPUTS: Final = "."
"""The key under which an outcome names the tree of all outputs."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an attempt ended. `lost`: its worker does not know, and it runs no more."""

    kind: Literal[
        "exited", "cancelled", "preempted", "timed-out", "not-started", "lost"
    ]
    exit_code: ExitCode | None = None
    reason: Text = ""
    # Content hashes by path.
    outputs: Annotated[dict[BelowPath, Name], Meta(max_length=OUTPUTS_MAX)] = {}
    values: Annotated[dict[Name, Scalar], Meta(max_length=VALUES_MAX)] = {}
    # What results are compared by. A scheduler believes none that a worker tells.
    digest: Name = ""
    # The most that it took at once, and of any one GPU; 0 if that was not measured.
    memory_bytes: Amount = 0
    gpu_memory_bytes: Amount = 0


class Report(Message, frozen=True, tag="report"):
    """The attempt has ended and nothing of it is left. Sent until acknowledged.

    `next` is the attempt that waited for this end, and has started on the same lease.
    `place` is after the last piece of its output, unless there is none, and `missing`
    how many bytes of that the worker had no room for. `job` is named if it is kept:
    only who leads it acknowledges this.
    """

    attempt: Attempt
    lease: LeaseId
    outcome: Outcome
    next: Attempt | None = None
    place: OutputPlace | None = None
    missing: Count = 0
    job: JobId = JobId("")


class Acknowledgement(Message, frozen=True, tag="acknowledgement"):
    """The reports of these attempts are on the sender's disk, or no longer matter.

    Those of a kept `job` are on the disks of most of its members.
    """

    attempts: Annotated[tuple[Attempt, ...], Meta(max_length=LEASES_MAX)]
    job: JobId = JobId("")


# Gates: getting in, and being reached.


class PeersWanted(Message, frozen=True, tag="peers-wanted"):
    """Name some members, so that I can find the others. I can be reached there."""

    request: RequestId
    count: Count
    addresses: Addresses = ()
    relays: bool = False  # I am a gate: others can be reached through me


class PeerAddress(msgspec.Struct, frozen=True):
    """Where a member was last seen."""

    node: NodeId
    addresses: Addresses


class PeersKnown(Message, frozen=True, tag="peers-known"):
    """Some members."""

    request: RequestId
    peers: Annotated[tuple[PeerAddress, ...], Meta(max_length=PEERS_MAX)]


class ReservationWanted(Message, frozen=True, tag="reservation-wanted"):
    """Relay for me: I cannot be dialled."""

    request: RequestId
    addresses: Addresses = ()


class Reservation(Message, frozen=True, tag="reservation"):
    """The sender relays to the receiver for this long, within these limits."""

    request: RequestId
    valid_for_s: Seconds
    bytes_max: Amount
    circuits_max: Count


class Join(Message, frozen=True, tag="join"):
    """Asks to join with the secret of an invitation. The link proved the sender's id.

    To a gate, which must not learn the secret, a newcomer shows a proof that it knows
    it, and a print of the key of the node that gave it out.
    """

    request: RequestId
    secret: Secret
    name: Name = ""
    proof: Secret = b""
    inviter: Secret = b""


class Introduction(Message, frozen=True, tag="introduction"):
    """A newcomer, whose id is proved, asks at this gate for what you invited it to."""

    request: RequestId
    newcomer: NodeId
    proof: Secret
    name: Name = ""
    moves: Count = 0  # how often the sender knows the invitation to be given away


class Welcome(Message, frozen=True, tag="welcome"):
    """The receiver is a member by this grant, and these members can be dialled.

    Through a gate, the proof says that the sender knows the secret.
    """

    request: RequestId
    grant: Grant
    peers: Annotated[tuple[PeerAddress, ...], Meta(max_length=PEERS_MAX)] = ()
    proof: Secret = b""


class Goodbye(Message, frozen=True, tag="goodbye"):
    """The sender leaves in good order: all its leases are over."""

    reason: Text = ""


# Blobs: code, data and results, named by their content.


class BlobHeld(Message, frozen=True, tag="blob-held"):
    """Holders of a blob and of all blobs that it names; if empty, the sender."""

    blob: BlobId
    holders: Annotated[tuple[PeerAddress, ...], Meta(max_length=HOLDERS_MAX)] = ()


ToWorker = (
    Announcement
    | Inquiry
    | Demand
    | Commit
    | Release
    | Renew
    | Assignment
    | Cancel
    | Acknowledgement
    | OutputReceipt
    | Adoption
)
ToScheduler = (
    Inventory
    | InventoryChanged
    | LoadDigest
    | Offer
    | Refusal
    | Committed
    | Withdrawal
    | Renewed
    | Preemption
    | Started
    | Progress
    | Output
    | Staging
    | Checkpoint
    | Report
)
ToGate = PeersWanted | ReservationWanted
ToGossip = LoadDigests | Neighbourhood
ToStore = PieceWanted | BlobPiece | PieceRefusal | BlobHeld
ToAny = (
    Hello
    | Revocation
    | GrantWanted
    | GrantRenewed
    | Join
    | Introduction
    | admission.AdmissionWanted
    | admission.AdmissionHeard
    | admission.InvitationGiven
    | admission.InvitationTaken
    | Welcome
    | Goodbye
    | PeersKnown
    | Reservation
)
ToPost = Mail | MailReceipt
AnyMessage = (
    ToWorker
    | ToScheduler
    | ToGate
    | ToGossip
    | ToStore
    | ToProximity
    | ToLanes
    | ToChannels
    | ToPost
    | ToApi
    | ToKeeper
    | SchedulerLoad
    | ToAny
)
