"""One value or more of every message, with no field left at its default.

Each is kept as bytes in a file of its release, and never changes there. When a
message gets a new field, leave its examples alone and add another, such as
`offer.2`; then run `python -m tests.wire.record`.
"""

from typing import Final

import msgspec

from shoal.model.ids import (
    Attempt,
    BlobId,
    GroupId,
    JobId,
    LeaseId,
    NodeId,
    OwnerId,
    RequestId,
    TaskId,
)
from shoal.model.job import Input, PythonNeed, Task, Work
from shoal.model.resources import (
    Allocation,
    Capacity,
    Device,
    DeviceShare,
    GpuNeed,
    Profile,
)
from shoal.protocol.admission import (
    AdmissionHeard,
    AdmissionWanted,
    InvitationGiven,
    InvitationTaken,
)
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.call_batches import CallBatch, ResultBatch
from shoal.protocol.channels.messages import (
    ChannelBatch,
    ChannelEnd,
    ChannelId,
    ChannelOpen,
    ChannelUse,
)
from shoal.protocol.forwarding import ApiCall, ApiPiece, ApiReceipt
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.mail import Mail, MailReceipt
from shoal.protocol.messages import (
    Acknowledgement,
    Announcement,
    AnyMessage,
    Assignment,
    BlobHeld,
    Cancel,
    Checkpoint,
    Commit,
    Committed,
    Demand,
    Goodbye,
    Grant,
    Hello,
    Inquiry,
    Introduction,
    Inventory,
    InventoryChanged,
    Join,
    Load,
    LoadDigest,
    LoadDigests,
    Loss,
    Neighbourhood,
    Occupied,
    Offer,
    Outcome,
    Output,
    OutputPlace,
    OutputReceipt,
    PeerAddress,
    PeersKnown,
    PeersWanted,
    Preemption,
    Progress,
    Rank,
    Refusal,
    Release,
    Renew,
    Renewed,
    Report,
    Reservation,
    ReservationWanted,
    Revocation,
    Rumour,
    SavedAge,
    Staging,
    Started,
    Waiting,
    Want,
    Welcome,
    Withdrawal,
)
from shoal.protocol.proximity.messages import Position, ProbePiece, ProbeWanted
from shoal.protocol.succession.messages import (
    Adoption,
    Ballot,
    Candidacy,
    Claim,
    Handover,
    Keep,
    Kept,
    SchedulerLoad,
)

ANN: Final = NodeId("12D3KooWAnn")
BOB: Final = NodeId("12D3KooWBob")
REQUEST: Final = RequestId("ann/7")
LEASES: Final = (LeaseId("bob/1"), LeaseId("bob/2"))
ATTEMPT: Final = Attempt(ANN, 3, 41)
NEXT_ATTEMPT: Final = Attempt(ANN, 3, 42)
ADDRESSES: Final = ("/ip4/10.0.0.1/tcp/4001",)
TREE: Final = BlobId("0f" * 32 + "-1234")
BLOB: Final = BlobId("f0" * 32 + "-98304")

ADMIN: Final = Grant(
    node=BOB,
    shoal="reef",
    roles=("admin", "scheduler"),
    owner=OwnerId("bob"),
    top_priority=90,
    quota_gpus=16,
    quota_cpu_milli=64_000,
    serial=2,
    expires_wall_s=1_900_000_000.5,
    signer=NodeId("12D3KooWRoot"),
    signature=b"\x01" * 64,
)
GRANT: Final = Grant(
    node=ANN,
    shoal="reef",
    roles=("scheduler",),
    owner=OwnerId("ann"),
    top_priority=50,
    quota_gpus=8,
    quota_cpu_milli=32_000,
    serial=5,
    expires_wall_s=1_800_000_000.25,
    signer=BOB,
    delegation=ADMIN,
    signature=b"\x02" * 64,
)
NEED: Final = GpuNeed(
    count=2,
    count_max=4,
    milli=500,
    memory_min_bytes=16 << 30,
    memory_max_bytes=80 << 30,
    models=("A100", "H100"),
    vendor="nvidia",
)
PROFILE: Final = Profile(
    cpu_milli=4_000,
    memory_bytes=8 << 30,
    disk_bytes=1 << 40,
    gpu=NEED,
    labels=(("zone", "west"),),
)
USING: Final = Profile(cpu_milli=500, uses=("data:imagenet", "python:torch"))
LEARNING: Final = Profile(cpu_milli=500, modules=("torch",))
HASTY: Final = Profile(cpu_milli=500, longest_s=3_610)
EVERYTHING: Final = msgspec.structs.replace(
    PROFILE, uses=USING.uses, modules=LEARNING.modules, longest_s=60
)
CAPACITY: Final = Capacity(
    cpu_milli=64_000,
    memory_bytes=256 << 30,
    disk_bytes=2 << 40,
    devices=(Device("gpu0", "nvidia", "H100", 80 << 30),),
    labels=(("zone", "west"),),
)
LOAD: Final = Load(
    cpu_milli=60_000,
    memory_bytes=200 << 30,
    disk_bytes=1 << 40,
    gpu_milli=(500,),
    gpu_memory=(40 << 30,),
    active=3,
    draining=True,
)
WORK: Final = Work(
    driver="torchrun",
    argv=("python", "train.py", "--lr", "{lr}"),
    setup=("pip", "check"),
    env={"SEED": "7"},
    secrets=("token",),
    image="ghcr.io/reef/train:1",
    workdir="sha256:feed",
    outputs=("model/*.safetensors",),
    network=True,
)
TASK: Final = Task(
    id=TaskId("job1.train.1"),
    job=JobId("job1"),
    group=GroupId("job1.train"),
    index=1,
    size=2,
    params={"lr": 0.1, "layers": 12, "name": "größe", "fast": True},
    work=WORK,
    profiles=(PROFILE,),
    time_limit_s=3_600.0,
    grace_s=30.0,
)
ALLOCATION: Final = Allocation(
    cpu_milli=4_000,
    memory_bytes=8 << 30,
    disk_bytes=1 << 40,
    shares=(DeviceShare("gpu0", 500, 40 << 30),),
)
OUTCOME: Final = Outcome(
    kind="exited",
    exit_code=-15,
    reason="killed by signal 15",
    outputs={"model/last.safetensors": "sha256:beef"},
    values={"loss": 0.25},
)

TOOK: Final = msgspec.structs.replace(
    OUTCOME, memory_bytes=3 << 30, gpu_memory_bytes=2 << 30
)

EXAMPLES: Final[dict[str, AnyMessage]] = {
    "hello": Hello(versions=(1, 2), generation=3, name="ann's laptop", grant=GRANT),
    "revocation": Revocation(
        node=ANN,
        shoal="reef",
        serial=5,
        signer=BOB,
        delegation=ADMIN,
        signature=b"\x03" * 64,
    ),
    "grant-wanted": GrantWanted(request=REQUEST, grant=GRANT),
    "grant-renewed": GrantRenewed(
        request=REQUEST, grant=GRANT, reason="this node is no admin", admins=(ANN, BOB)
    ),
    "announcement": Announcement(
        scheduler=ANN,
        addresses=ADDRESSES,
        epoch=3,
        seq=2,
        wants=(Want(PROFILE, 16),),
        grant=GRANT,
    ),
    "announcement.2": Announcement(scheduler=ANN, wants=(Want(LEARNING, 2),)),
    "announcement.4": Announcement(scheduler=ANN, wants=(Want(HASTY, 2),)),
    "announcement.3": Announcement(scheduler=ANN, wants=(Want(USING, 2),)),
    "inquiry": Inquiry(request=REQUEST),
    "inventory": Inventory(
        epoch=4,
        seq=9,
        capacity=CAPACITY,
        load=LOAD,
        drivers=("process", "torchrun"),
        warm=("sha256:feed",),
    ),
    "inventory.2": Inventory(
        epoch=4,
        seq=9,
        capacity=CAPACITY,
        load=LOAD,
        addresses=("/ip4/10.0.0.20/tcp/4001",),
    ),
    "inventory.3": Inventory(
        epoch=4,
        seq=9,
        capacity=CAPACITY,
        load=LOAD,
        networked=("process",),
        terms="tasks of other owners get no network on this worker",
        weaker=("memory: it is looked at twice a second",),
    ),
    "inventory.4": Inventory(
        epoch=4,
        seq=9,
        capacity=msgspec.structs.replace(CAPACITY, lacks=("safetensors", "torch")),
        load=LOAD,
    ),
    "inventory.5": Inventory(
        epoch=4,
        seq=9,
        capacity=msgspec.structs.replace(CAPACITY, lends=("data:imagenet",)),
        load=LOAD,
    ),
    "inventory.7": Inventory(
        epoch=4,
        seq=9,
        capacity=msgspec.structs.replace(CAPACITY, longest_s=3_360),
        load=LOAD,
    ),
    "inventory-changed": InventoryChanged(epoch=4, seq=10, load=LOAD),
    "inventory-changed.2": InventoryChanged(epoch=4, seq=10, load=LOAD, since=9),
    "inventory-changed.3": InventoryChanged(
        epoch=4, seq=10, load=LOAD, gangs=("0123456789abcdef",)
    ),
    "inventory-changed.4": InventoryChanged(
        epoch=4,
        seq=10,
        load=LOAD,
        ahead=(Waiting(Rank(10, 12.5, ANN, REQUEST), EVERYTHING, 8),),
    ),
    "inventory.8": Inventory(
        epoch=4,
        seq=9,
        capacity=CAPACITY,
        load=LOAD,
        ahead=(Waiting(Rank(10, 12.5, ANN, REQUEST), EVERYTHING, 8),),
    ),
    "inventory.6": Inventory(
        epoch=4, seq=9, capacity=CAPACITY, load=LOAD, gangs=("0123456789abcdef",)
    ),
    "load-digest": LoadDigest(node=BOB, epoch=4, seq=11, load=LOAD),
    "load-digests": LoadDigests(
        rumours=(Rumour(BOB, 4, 11, 7, 60_000, 200 << 30, 2, 1_000, 24 << 30, True),)
    ),
    "load-digests.2": LoadDigests(
        rumours=(Rumour(BOB, 4, 12, 7, 60_000),), signatures=(b"\x06" * 64,)
    ),
    "demand": Demand(
        request=REQUEST,
        profile=PROFILE,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
        driver="torchrun",
        preempt=True,
        preemptible=False,
        owner=OwnerId("ann"),
        grant=GRANT,
    ),
    "demand.2": Demand(
        request=REQUEST,
        profile=PROFILE,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
        wait_for_s=5.0,
    ),
    "demand.7": Demand(
        request=REQUEST,
        profile=PROFILE,
        count=1,
        rank=Rank(10, 12.5, ANN, REQUEST),
        devices=("GPU-1", "GPU-0"),
    ),
    "demand.3": Demand(
        request=REQUEST,
        profile=PROFILE,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
        network=True,
    ),
    "demand.4": Demand(
        request=REQUEST,
        profile=LEARNING,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
    ),
    "demand.8": Demand(
        request=REQUEST,
        profile=HASTY,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
    ),
    "demand.5": Demand(
        request=REQUEST,
        profile=USING,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
    ),
    "demand.6": Demand(
        request=REQUEST,
        profile=PROFILE,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
        driver="torchrun",
        preempt=True,
        preemptible=False,
        owner=OwnerId("ann"),
        grant=GRANT,
    ),
    "demand.12": Demand(
        request=REQUEST,
        profile=PROFILE,
        count=2,
        rank=Rank(10, 12.5, ANN, REQUEST),
        wait_for_s=30.0,
        claim=True,
    ),
    "offer": Offer(request=REQUEST, leases=LEASES, valid_for_s=6.0, displaces=1),
    "offer.2": Offer(request=REQUEST, leases=LEASES, valid_for_s=6.0, displaces=1),
    "offer.3": Offer(
        request=REQUEST,
        leases=LEASES,
        valid_for_s=6.0,
        displaces=2,
        destroys=(Loss(5, 250), Loss(-1, 1_000_000)),
    ),
    "refusal": Refusal(
        request=REQUEST,
        leases=LEASES,
        attempt=ATTEMPT,
        reason="gpu memory 8 GiB < 24 GiB",
        retry_in_s=2.5,
    ),
    "commit": Commit(request=REQUEST, leases=LEASES, lease_s=15.0),
    "committed": Committed(request=REQUEST, leases=LEASES),
    "release": Release(leases=LEASES),
    "release.2": Release(leases=LEASES, requests=(REQUEST,)),
    "withdrawal": Withdrawal(leases=LEASES, reason="a better rank came"),
    "renew": Renew(leases=LEASES, lease_s=15.0),
    "renew.2": Renew(leases=LEASES, lease_s=15.0, saved=(SavedAge(LEASES[0], 4.5),)),
    "renewed": Renewed(
        leases=(Occupied(LEASES[0], ATTEMPT), Occupied(LEASES[1])),
        gone=(LeaseId("bob/0"),),
    ),
    "preemption": Preemption(lease=LEASES[0], grace_s=30.0, reason="priority 10 < 50"),
    "assignment": Assignment(
        lease=LEASES[0], attempt=ATTEMPT, task=TASK, gang=(BOB, ANN)
    ),
    "assignment.2": Assignment(
        lease=LEASES[1],
        attempt=ATTEMPT,
        task=Task(
            id=TaskId("job2.all.0"),
            job=JobId("job2"),
            group=GroupId("job2.all"),
            work=Work(recipe="diloco"),
        ),
    ),
    "assignment.verified": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=Task(
            id=TaskId("job3.all.0"),
            job=JobId("job3"),
            group=GroupId("job3.all"),
            work=Work(argv=("date",), keep_stdout=True),
        ),
    ),
    "assignment.stdin": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=Task(
            id=TaskId("job5.main.0"),
            job=JobId("job5"),
            group=GroupId("job5.main"),
            work=Work(argv=("bash",), stdin="terminal"),
        ),
    ),
    "assignment.environment": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=Task(
            id=TaskId("job4.all.0"),
            job=JobId("job4"),
            group=GroupId("job4.all"),
            work=Work(
                argv=("python", "train.py"),
                python=PythonNeed(
                    name="torch",
                    version="3.12",
                    packages=("numpy",),
                    files=f"tree:{TREE}",
                    digest="feed",
                ),
                mounts=("imagenet",),
                caches=("huggingface",),
            ),
            profiles=(USING,),
        ),
    ),
    "assignment.3": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=TASK,
        gang=(BOB, ANN),
        places=("/ip4/10.0.0.20/tcp/4001", "/ip4/10.0.0.21/tcp/4001"),
    ),
    "assignment.4": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=TASK,
        checkpoint=TREE,
        checkpoint_path="out/step-100.pt",
        secrets={"HF_TOKEN": b"\x05" * 80},
    ),
    "assignment.7": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=msgspec.structs.replace(TASK, label="lr=0.1,name=größe"),
        inputs=(Input(TREE), Input(TREE, "train/lr=0.1")),
    ),
    "assignment.9": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=msgspec.structs.replace(TASK, alone=True),
    ),
    "assignment.10": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=msgspec.structs.replace(
            TASK, memory_from="runs", gpu_memory_from="recipe"
        ),
    ),
    "assignment.5": Assignment(
        lease=LEASES[0], attempt=NEXT_ATTEMPT, task=TASK, after=ATTEMPT
    ),
    "assignment.8": Assignment(
        lease=LEASES[0], attempt=ATTEMPT, task=TASK, receipts=True
    ),
    "assignment.6": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=Task(
            id=TaskId("job4.train.0"),
            job=JobId("job4"),
            group=GroupId("job4.train"),
            work=Work(recipe="diloco"),
            profiles=(LEARNING,),
        ),
    ),
    "assignment.11": Assignment(
        lease=LEASES[0],
        attempt=ATTEMPT,
        task=Task(
            id=TaskId("job4.train.0"),
            job=JobId("job4"),
            group=GroupId("job4.train"),
            work=WORK,
            profiles=(HASTY,),
            time_limit_s=3_600.0,
        ),
    ),
    "cancel": Cancel(lease=LEASES[0], attempt=ATTEMPT, grace_s=10.0),
    "cancel.2": Cancel(lease=LEASES[0], attempt=ATTEMPT, unless_started=True),
    "started": Started(attempt=ATTEMPT, lease=LEASES[0], allocation=ALLOCATION),
    "progress": Progress(
        attempt=ATTEMPT, seq=7, fraction=0.5, metrics={"loss": 1.75, "step": 100.0}
    ),
    "output": Output(
        attempt=ATTEMPT, stream="stderr", offset=4_096, data=b"step 100\n\xff"
    ),
    "output.2": Output(
        attempt=ATTEMPT,
        stream="stdout",
        offset=0,
        data=b"x",
        place=OutputPlace(7, 40, 42),
    ),
    "output-receipt": OutputReceipt(epoch=7, taken=41, gap=True),
    "staging": Staging(
        attempt=ATTEMPT, seq=3, fetched_bytes=12_000_000, total_bytes=80_000_000
    ),
    "staging.2": Staging(
        attempt=ATTEMPT,
        seq=3,
        fetched_bytes=0,
        total_bytes=0,
        note="building its Python environment",
        made="its setup ran in 2.0 s",
    ),
    "checkpoint": Checkpoint(attempt=ATTEMPT, seq=2, tree=TREE, path="out/step-100.pt"),
    "channel-open": ChannelOpen(
        channel=ChannelId(7, 3, 1),
        use=ChannelUse(
            kind="program",
            argv=("bash", "-l"),
            terminal=True,
            rows=24,
            columns=80,
            terminal_type="xterm",
        ),
        attempt=ATTEMPT,
    ),
    "channel-open-job": ChannelOpen(
        channel=ChannelId(7, 4, 0),
        use=ChannelUse(kind="port", port=8888),
        job="last",
        task="lr=0.1",
    ),
    "channel-batch": ChannelBatch(
        channel=ChannelId(7, 3, 1),
        by_opener=True,
        first=4,
        taken=9,
        items=(b"Dls\n",),
        open=False,
        probe=True,
    ),
    "channel-end": ChannelEnd(
        channel=ChannelId(7, 3, 1), by_opener=False, reason="the link broke"
    ),
    "call-batch": CallBatch(
        attempt=ATTEMPT,
        first=7,
        taken=5,
        items=(b"\x03" + bytes(12) + b"call", b"\x06" + bytes(8)),
        open=False,
        probe=True,
    ),
    "result-batch": ResultBatch(
        task=TASK.id,
        attempt=ATTEMPT,
        first=5,
        taken=9,
        items=(b"\x08" + bytes(8) + b"value",),
        open=False,
        probe=True,
    ),
    "channel-batch-turn": ChannelBatch(
        channel=ChannelId(7, 3, 1), by_opener=True, first=4, taken=9, turn=2
    ),
    "call-batch-turn": CallBatch(attempt=ATTEMPT, first=7, taken=5, turn=2),
    "result-batch-turn": ResultBatch(
        task=TASK.id, attempt=ATTEMPT, first=5, taken=9, turn=2
    ),
    "mail": Mail(
        attempt=ATTEMPT,
        seq=4,
        to=TaskId("7k2f.aggregate.0"),
        data=b"\x81status",
        sender=TASK.id,
        receiver=ATTEMPT,
        node=BOB,
        addresses=ADDRESSES,
    ),
    "mail:after": Mail(
        attempt=ATTEMPT,
        seq=4,
        to=TaskId("7k2f.aggregate.0"),
        data=b"\x81status",
        after=3,
    ),
    "api-call": ApiCall(number=3, method="Logs", request=b"\n\x06q7k2f9"),
    "api-piece": ApiPiece(number=3, seq=2, kind="message", data=b"\n\x02hi"),
    "api-piece:refusal": ApiPiece(
        number=3, seq=0, kind="refusal", reason="16 calls are open"
    ),
    "api-receipt": ApiReceipt(number=3, taken=2),
    "api-receipt:stop": ApiReceipt(number=3, taken=2, stop=True),
    "mail-receipt": MailReceipt(attempt=ATTEMPT, seq=4, what="taken"),
    "report": Report(attempt=ATTEMPT, lease=LEASES[0], outcome=OUTCOME),
    "report.3": Report(
        attempt=ATTEMPT,
        lease=LEASES[0],
        outcome=Outcome("exited", exit_code=0, digest="5eed"),
    ),
    "report.5": Report(attempt=ATTEMPT, lease=LEASES[0], outcome=TOOK),
    "report.2": Report(
        attempt=ATTEMPT, lease=LEASES[0], outcome=OUTCOME, next=NEXT_ATTEMPT
    ),
    "report.4": Report(
        attempt=ATTEMPT,
        lease=LEASES[0],
        outcome=OUTCOME,
        place=OutputPlace(7, 40, 43),
        missing=512,
    ),
    "report.kept": Report(
        attempt=ATTEMPT, lease=LEASES[0], outcome=OUTCOME, job=JobId("job6")
    ),
    "acknowledgement": Acknowledgement(attempts=(ATTEMPT,)),
    "acknowledgement.kept": Acknowledgement(attempts=(ATTEMPT,), job=JobId("job6")),
    "assignment.kept": Assignment(
        lease=LEASES[0], attempt=ATTEMPT, task=TASK, term=2, members=(ANN, BOB)
    ),
    "keep": Keep(
        job=JobId("job6"),
        term=2,
        members=(ANN, BOB),
        base=3,
        start=4,
        beat=17,
        entries=(b"an entry", b"another"),
    ),
    "keep.over": Keep(
        job=JobId("job6"), term=2, members=(ANN,), base=3, start=9, beat=18, over=True
    ),
    "keep.forward": Keep(
        job=JobId("job6"),
        term=1,
        members=(ANN, BOB),
        base=1,
        start=0,
        beat=1,
        entries=(b"an entry",),
        forward=True,
    ),
    "scheduler-load": SchedulerLoad(open=4_000),
    "scheduler-load.full": SchedulerLoad(open=12, full=True),
    "kept": Kept(job=JobId("job6"), term=2, have=6, beat=17, vowed=2),
    "kept.lacking": Kept(
        job=JobId("job6"), term=2, have=6, beat=17, vowed=2, lacking=1
    ),
    "handover": Handover(job=JobId("job6"), term=2, to=BOB),
    "mail.adopted": Mail(
        attempt=NEXT_ATTEMPT, seq=3, to=TaskId("t2"), data=b"on", origin=ATTEMPT
    ),
    "candidacy": Candidacy(job=JobId("job6"), term=3, log_term=2, size=6),
    "ballot": Ballot(job=JobId("job6"), term=3, granted=True, vowed=3),
    "ballot.over": Ballot(job=JobId("job6"), term=3, granted=False, vowed=0, over=True),
    "adoption": Adoption(
        job=JobId("job6"),
        term=3,
        lease_s=90.0,
        claims=(Claim(ATTEMPT, NEXT_ATTEMPT, LEASES[0]),),
    ),
    "position": Position(
        x_us=-1_200,
        y_us=35_000,
        z_us=7,
        height_us=310,
        error_milli=120,
        uplink=10,
        narrow=((BOB, 4),),
    ),
    "neighbourhood": Neighbourhood(links=((7, 0), (4_294_967_295, 15))),
    "probe-wanted": ProbeWanted(probe=3, size=32_768),
    "probe-piece": ProbePiece(probe=3, data=b"\x00" * 64),
    "piece-wanted": PieceWanted(blob=BLOB, pieces=((1, 0), (0, 7)), under=TREE),
    "blob-piece": BlobPiece(blob=BLOB, level=1, index=2, data=b"\x07" * 64),
    "piece-refusal": PieceRefusal(blob=BLOB, reason="it is not held here"),
    "blob-held": BlobHeld(blob=TREE, holders=(PeerAddress(BOB, ADDRESSES),)),
    "peers-wanted": PeersWanted(request=REQUEST, count=8),
    "peers-wanted:reachable": PeersWanted(
        request=REQUEST,
        count=8,
        addresses=("/ip4/192.0.2.7/tcp/4002/p2p/otter",),
    ),
    "peers-known": PeersKnown(request=REQUEST, peers=(PeerAddress(BOB, ADDRESSES),)),
    "peers-known.2": PeersKnown(request=REQUEST, peers=(PeerAddress(BOB, ADDRESSES),)),
    "reservation-wanted": ReservationWanted(request=REQUEST, addresses=ADDRESSES),
    "reservation": Reservation(
        request=REQUEST, valid_for_s=3_600.0, bytes_max=1 << 30, circuits_max=16
    ),
    "join": Join(request=REQUEST, secret=b"\x03" * 16, name="old-crow"),
    "join:at-a-gate": Join(
        request=REQUEST, secret=b"", proof=b"\x05" * 32, inviter=b"\x06" * 16
    ),
    "introduction": Introduction(
        request=REQUEST, newcomer=BOB, proof=b"\x05" * 32, name="old-crow"
    ),
    "introduction:given-away": Introduction(
        request=REQUEST, newcomer=BOB, proof=b"\x05" * 32, moves=2
    ),
    "admission-wanted": AdmissionWanted(
        request=REQUEST, commitment=b"\x09" * 32, nonce=b"\x0a" * 16, has="1 GPU"
    ),
    "admission-heard": AdmissionHeard(request=REQUEST, nonce=b"\x0b" * 16),
    "invitation-given": InvitationGiven(
        request=REQUEST,
        digest=b"\x08" * 32,
        roles=("worker",),
        uses=2,
        ends_in_s=600.0,
        owner=OwnerId("carol"),
        top_priority=3,
        quota_gpus=4,
        quota_cpu_milli=8_000,
        valid_for_s=86_400.0,
    ),
    "invitation-given:for-the-second-time": InvitationGiven(
        request=REQUEST,
        digest=b"\x08" * 32,
        roles=("worker",),
        uses=1,
        ends_in_s=60.0,
        joined=(BOB,),
        moves=2,
    ),
    "invitation-taken": InvitationTaken(request=REQUEST),
    "welcome:through-a-gate": Welcome(request=REQUEST, grant=GRANT, proof=b"\x07" * 32),
    "peers-wanted:by-a-gate": PeersWanted(request=REQUEST, count=8, relays=True),
    "welcome": Welcome(
        request=REQUEST, grant=GRANT, peers=(PeerAddress(BOB, ADDRESSES),)
    ),
    "goodbye": Goodbye(reason="the owner shut down"),
}

NO_LONGER_SENT = frozenset({"demand", "offer", "peers-known"})
"""Examples whose recorded bytes have a field that is gone: `warm`, `size_estimate`.

They are still read, without that field. Its name means nothing else, ever.
"""
