from shoal.model.directory.capability import capability_keys, lookup_keys
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile

SERVER = Capacity(
    cpu_milli=128_000,
    memory_bytes=1024 * GIB,
    devices=tuple(Device(f"{n}", "nvidia", "A100", 80 * GIB) for n in range(8)),
    labels=(("region", "eu"),),
)
GAMING_PC = Capacity(
    cpu_milli=16_000,
    memory_bytes=32 * GIB,
    devices=(Device("0", "nvidia", "RTX3070", 8 * GIB),),
)


def test_a_worker_provides_every_rung_that_it_reaches() -> None:
    assert capability_keys(SERVER) == (
        "label/region=eu",
        "gpu-model/A100",
        "gpu-vendor/nvidia",
        *("gpu-memory/8", "gpu-memory/16", "gpu-memory/32", "gpu-memory/64"),
        *("gpu-count/1", "gpu-count/2", "gpu-count/4", "gpu-count/8"),
        *("ram/32", "ram/128", "ram/512"),
        *("cpu/16", "cpu/64"),
        "any",
    )


def test_a_gaming_pc_provides_seven_keys() -> None:
    assert len(capability_keys(GAMING_PC)) == 7


def test_a_worker_without_gpus_provides_no_key_for_them() -> None:
    assert capability_keys(Capacity(cpu_milli=4_000)) == ("any",)


def test_the_rarest_class_of_a_profile_is_looked_up_first() -> None:
    profile = Profile(
        cpu_milli=20_000,
        memory_bytes=200 * GIB,
        gpu=GpuNeed(3, 3, memory_min_bytes=24 * GIB, models=("A100",), vendor="nvidia"),
        labels=(("region", "eu"),),
    )

    assert lookup_keys(profile) == (
        "label/region=eu",
        "gpu-model/A100",
        "gpu-memory/16",
        "gpu-vendor/nvidia",
        "gpu-count/2",
        "ram/128",
        "cpu/16",
        "any",
    )


def test_an_uncommon_vendor_is_rarer_than_a_size() -> None:
    need = GpuNeed(vendor="amd", memory_min_bytes=24 * GIB)

    assert lookup_keys(Profile(gpu=need))[:2] == ("gpu-vendor/amd", "gpu-memory/16")


def test_one_of_several_models_has_no_key_for_models() -> None:
    need = GpuNeed(models=("A100", "H100"))

    assert lookup_keys(Profile(gpu=need)) == ("gpu-count/1", "any")


def test_a_profile_that_asks_for_little_finds_any_worker() -> None:
    assert lookup_keys(Profile(cpu_milli=1_000)) == ("any",)
