"""What a machine uses, and how much of it is remembered."""

import itertools
import time
from pathlib import Path

from shoal.runtime.monitoring.machine_use import (
    KEPT,
    OVER_S,
    SAMPLE_S,
    DeviceUse,
    MachineMeter,
    MachineUse,
    UseHistory,
    average,
)


def use(at_s: float, cpu_milli: int = 0, over_s: float = SAMPLE_S) -> MachineUse:
    device = DeviceUse("0", cpu_milli, 1 << 30)
    return MachineUse(at_s, over_s, cpu_milli, 7, 9, devices=(device,))


def test_what_is_old_is_coarse_and_a_day_is_a_few_hundred_points() -> None:
    history = UseHistory()
    for number in range(1, 2 * 86_400 // int(SAMPLE_S)):
        history.add(use(number * SAMPLE_S, cpu_milli=number % 2 * 2_000))

    kept = history.since(0.0)

    assert len(kept) <= sum(KEPT)
    assert kept == sorted(kept, key=lambda each: each.at_s)
    assert [each.over_s for each in (kept[0], kept[-1])] == [OVER_S[-1], SAMPLE_S]
    assert 86_000 < kept[-1].at_s - kept[0].at_s < 90_000
    ends = itertools.pairwise(kept)
    assert all(b.at_s - b.over_s >= a.at_s - 1e-6 for a, b in ends)  # No time twice.
    assert all(each.cpu_milli == 1_000 for each in kept[: KEPT[2]])
    assert history.since(kept[-2].at_s) == kept[-1:]


def test_an_average_goes_by_how_long_each_use_was() -> None:
    found = average([use(1.0, 4_000, over_s=1.0), use(4.0, 0, over_s=3.0)])

    assert (found.at_s, found.over_s, found.cpu_milli) == (4.0, 4.0, 1_000)
    assert found.devices == (DeviceUse("0", 1_000, 1 << 30),)
    gone = average([use(1.0), use(2.0)._replace(devices=())])
    assert gone.devices == ()  # Nobody knows what it did meanwhile.


def test_the_meter_sees_a_busy_processor_and_a_file_that_is_written(
    tmp_path: Path,
) -> None:
    meter = MachineMeter(tmp_path)
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass

    found, size = meter.read(), meter.size()

    assert found.cpu_milli >= 200 * 0.1 / found.over_s
    assert found.cpu_milli <= size.cpu_milli
    assert 0 < found.memory_bytes < size.memory_bytes
    assert 0 < found.disk_bytes < size.disk_bytes
