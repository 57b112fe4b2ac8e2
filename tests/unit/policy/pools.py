"""Workers and wishes for tests of policies, made by hand and drawn by hypothesis."""

from pathlib import Path

from hypothesis import strategies as st

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.policy.queueing.queue import QueueEntry, Usage, aged
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable, WorkerView


def in_order(entries: list[QueueEntry], usage: Usage, now: float) -> list[QueueEntry]:
    """Sort all entries as they should be served: priority, fair share, age, id."""

    def rank(entry: QueueEntry) -> tuple[int, float, float, str]:
        share = usage.share(entry.owner, now)
        return -aged(entry, now), share, entry.waiting_since, entry.id

    return sorted(entries, key=rank)


def gpus(count: int, model: str = "A100", gib: int = 80) -> tuple[Device, ...]:
    return tuple(Device(str(n), "nvidia", model, gib * GIB) for n in range(count))


def capacity(
    cpus: int = 16,
    devices: tuple[Device, ...] = (),
    labels: tuple[tuple[str, str], ...] = (),
) -> Capacity:
    return Capacity(cpus * 1000, 64 * GIB, 100 * GIB, devices, labels)


def worker(
    name: str, cpus: int = 16, devices: tuple[Device, ...] = (), path_cost_us: int = 0
) -> WorkerView:
    size = capacity(cpus, devices)
    return WorkerView.idle(NodeId(name), size, path_cost_us=path_cost_us)


def table_of(*views: WorkerView) -> WorkerTable:
    table = WorkerTable()
    for view in views:
        table.put(view)
    return table


def needs(
    cpus: int = 0,
    count: int = 0,
    *,
    count_max: int = 0,
    milli: int = 1000,
    gib: int = 0,
    models: tuple[str, ...] = (),
) -> Profile:
    gpu = GpuNeed(count, max(count, count_max), milli, gib * GIB, models=models)
    return Profile(cpu_milli=cpus * 1000, gpu=gpu if count else None)


def install(folder: Path, name: str, source: str) -> None:
    """Lay out a package whose class `Name` is the policy `name`, as installers do."""
    package = f"{name}_package"
    (folder / f"{package}.py").write_text(source, encoding="utf-8")
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Name: {package}\nVersion: 1.0\n", encoding="utf-8"
    )
    points = f"[shoal.policies]\n{name} = {package}:{name.title()}\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")


MODELS = st.sampled_from(["A100", "T4", "H100"])
LABELS = st.sampled_from([(), (("region", "eu"),), (("region", "us"), ("zone", "1"))])
MEMORIES = st.sampled_from([0, 8, 24, 80]).map(lambda gib: gib * GIB)
VENDORS = st.sampled_from(["nvidia", "amd"])
IDS = st.sampled_from(["0", "1", "2", "3", "10"])
ALIKE = st.builds(
    lambda ids, *kind: tuple(Device(id_, *kind) for id_ in ids),
    st.lists(IDS, max_size=5, unique=True),
    VENDORS,
    MODELS,
    MEMORIES,
)
MIXED = st.lists(
    st.builds(Device, IDS, VENDORS, MODELS, MEMORIES),
    max_size=5,
    unique_by=lambda device: device.id,
).map(tuple)
DEVICES = ALIKE | MIXED
CAPACITIES = st.builds(
    Capacity,
    cpu_milli=st.integers(0, 16).map(lambda cpus: cpus * 500),
    memory_bytes=st.integers(0, 8).map(lambda gib: gib * GIB),
    disk_bytes=st.integers(0, 4).map(lambda gib: gib * GIB),
    devices=DEVICES,
    labels=LABELS,
    lacks=st.sampled_from([(), (), ("torch",)]),
    lends=st.sampled_from([(), ("data:imagenet",)]),
)
GPU_NEEDS = st.builds(
    lambda count, more, *others: GpuNeed(count, count + more, *others),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([111, 250, 500, 700, 1000, 1000, 1000]),
    st.sampled_from([0, 4 * GIB, 8 * GIB, 24 * GIB]),
    st.sampled_from([None, 24 * GIB]),
    st.sampled_from([(), ("A100",), ("T4", "H100")]),
    st.sampled_from(["", "", "NVIDIA", "amd"]),
)
PROFILES = st.builds(
    Profile,
    cpu_milli=st.integers(0, 6).map(lambda cpus: cpus * 500),
    memory_bytes=st.integers(0, 3).map(lambda gib: gib * GIB),
    disk_bytes=st.integers(0, 2).map(lambda gib: gib * GIB),
    gpu=st.none() | GPU_NEEDS,
    labels=st.sampled_from([(), (), (), (("region", "eu"),)]),
    modules=st.sampled_from([(), (), ("torch",)]),
    uses=st.sampled_from([(), (), (), ("data:imagenet",)]),
)
SHAPES = st.builds(
    TaskShape,
    PROFILES,
    st.sampled_from(["process", "process", "container"]),
    st.sampled_from([None, None, 300]),
)


@st.composite
def views(draw: st.DrawFn, node: NodeId) -> WorkerView:
    """Draw a worker, more or less busy."""
    size = draw(CAPACITIES)
    eighths = st.integers(0, 8)
    return WorkerView(
        node=node,
        capacity=size,
        cpu_milli=size.cpu_milli * draw(eighths) // 8,
        memory_bytes=size.memory_bytes * draw(eighths) // 8,
        disk_bytes=size.disk_bytes * draw(eighths) // 8,
        gpu_milli=tuple(
            draw(st.sampled_from([0, 300, 750, 1000])) for _ in size.devices
        ),
        gpu_memory=tuple(d.memory_bytes * draw(eighths) // 8 for d in size.devices),
        active=draw(st.integers(0, 4)),
        drivers=draw(st.sampled_from([("process",), ("container", "process"), ()])),
        draining=draw(st.integers(0, 9)) == 9,
        path_cost_us=draw(st.sampled_from([0, 300, 80_000])),
    )


@st.composite
def pools(draw: st.DrawFn, size_max: int = 8) -> list[WorkerView]:
    """Draw some workers with distinct names, in any order."""
    numbers = draw(st.lists(st.integers(0, 30), max_size=size_max, unique=True))
    return [draw(views(NodeId(f"n{number}"))) for number in numbers]
