"""A worker that could serve a profile is found under every key of the profile."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.directory.capability import capability_keys, lookup_keys
from shoal.model.resources import (
    GIB,
    Allocation,
    Capacity,
    Device,
    GpuNeed,
    Ledger,
    Profile,
)

MODELS = st.sampled_from(["A100", "H100", "RTX3090", "rtx3090"])
VENDORS = st.sampled_from(["", "nvidia", "AMD"])
LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2).map(
    lambda labels: tuple(sorted(labels.items()))
)


def amounts(most: int) -> st.SearchStrategy[int]:
    """Powers of two, their neighbours, and anything between."""
    powers = st.integers(0, most.bit_length() - 1).map(lambda n: 1 << n)
    return st.builds(lambda n, d: max(0, n + d), powers, st.integers(-1, 1)) | (
        st.integers(0, most)
    )


DEVICES = st.builds(
    Device,
    id=st.just("d"),
    vendor=VENDORS,
    model=MODELS,
    memory_bytes=amounts(128 * GIB),
)
CAPACITIES = st.builds(
    lambda cpu, memory, devices, labels: Capacity(
        cpu,
        memory,
        0,
        tuple(
            Device(f"d{n}", d.vendor, d.model, d.memory_bytes)
            for n, d in enumerate(devices)
        ),
        labels,
    ),
    amounts(300_000),
    amounts(4096 * GIB),
    st.lists(DEVICES, max_size=9),
    LABELS,
)


@st.composite
def served(draw: st.DrawFn, capacity: Capacity) -> Profile:
    """A profile that often fits: most of what it asks for is there."""
    gpu = None
    asks_for_gpus: bool = draw(st.booleans())
    if capacity.devices and asks_for_gpus:
        device = draw(st.sampled_from(capacity.devices))
        count = draw(st.integers(1, len(capacity.devices)))
        gpu = GpuNeed(
            count=count,
            count_max=count,
            memory_min_bytes=draw(st.sampled_from([0, device.memory_bytes])),
            models=draw(st.sampled_from([(), (device.model.upper(),)])),
            vendor=draw(st.sampled_from(["", device.vendor.lower()])),
        )
    return Profile(
        cpu_milli=draw(st.integers(0, capacity.cpu_milli)),
        memory_bytes=draw(st.integers(0, capacity.memory_bytes)),
        gpu=gpu,
        labels=draw(st.sampled_from([(), capacity.labels])),
    )


@settings(max_examples=400)
@given(st.data(), CAPACITIES)
def test_a_worker_that_fits_a_profile_provides_all_its_keys(
    data: st.DataObject, capacity: Capacity
) -> None:
    profile = data.draw(served(capacity))

    if isinstance(Ledger(capacity).fit(profile), Allocation):
        assert set(lookup_keys(profile)) <= set(capability_keys(capacity))


@given(CAPACITIES)
def test_a_worker_provides_each_key_once_and_few_of_them(capacity: Capacity) -> None:
    keys = capability_keys(capacity)

    assert len(set(keys)) == len(keys)
    models = {device.model.upper() for device in capacity.devices}
    assert len(keys) <= 20 + len(models) + len(capacity.labels)
