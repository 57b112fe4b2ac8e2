"""GPUs of AMD and Apple, as their systems tell of them."""

from pathlib import Path

import pytest

from shoal.drivers.devices import declared_gpus
from shoal.drivers.gpus.amd import AmdGpus
from shoal.drivers.gpus.apple import AppleGpus
from shoal.drivers.gpus.detection import Gpus
from shoal.errors import UsageError
from shoal.model.resources import GIB, Device

CPU = "cpu_cores_count 64\nsimd_count 0\ndrm_render_minor 0\n"
GPU = "cpu_cores_count 0\nsimd_count 1216\ndrm_render_minor {}\n"
MAC = b"""{"SPDisplaysDataType": [{"_name": "Apple M2 Max", "sppci_cores": "38",
"sppci_model": "Apple M2 Max", "spdisplays_vendor": "sppci_vendor_Apple",
"spdisplays_mtlgpufamilysupport": "spdisplays_metal3"}],
"SPHardwareDataType": [{"chip_type": "Apple M2 Max", "physical_memory": "64 GB"}]}"""


def put(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def amd_machine(sys: Path) -> None:
    """Lay out the files of a machine with two MI300X and one busy process."""
    nodes = sys / "kfd/kfd/topology/nodes"
    put(nodes / "0/properties", CPU)
    for number, render in ((1, 128), (2, 136)):
        unique = f"unique_id {0xABCD + number}\n"
        put(nodes / f"{number}/properties", GPU.format(render) + unique)
        put(nodes / f"{number}/gpu_id", 4_000 + number)
        card = sys / f"drm/renderD{render}/device"
        put(card / "product_name", "AMD Instinct MI300X OAM")
        put(card / "mem_info_vram_total", 205_822_885_888)
        put(card / "mem_info_vram_used", number * GIB)
        put(card / "gpu_busy_percent", 37)
    put(sys / "kfd/kfd/proc/77/vram_4001", GIB // 2)


def test_amd_gpus_are_found_with_their_files_and_use(tmp_path: Path) -> None:
    amd_machine(tmp_path)
    gpus = Gpus([AmdGpus(tmp_path), AppleGpus(b"")])

    found, uses = gpus.find(), gpus.uses()

    assert [each.id for each in found.devices] == ["amd0", "amd1"]
    assert {(each.vendor, each.memory_bytes) for each in found.devices} == {
        ("amd", 192 * GIB)
    }
    assert found.devices[0].model.startswith("MI300X")
    assert found.files["amd1"] == ("/dev/dri/renderD136", "/dev/kfd")
    assert [(use.busy_milli, use.memory_bytes) for use in uses] == [
        (370, GIB),
        (370, 2 * GIB),
    ]
    assert [use.memory_of({77}) for use in uses] == [GIB // 2, 0]


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1"}, ["amd1"]),
        ({"HIP_VISIBLE_DEVICES": "0"}, ["amd0"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000000000abcf"}, ["amd1"]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"SLURM_JOB_GPUS": "0"}, ["amd0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["amd0", "amd1"]),  # They are not NVIDIA's.
    ],
)
def test_amd_gpus_that_the_environment_hides_are_not_lent(
    tmp_path: Path, env: dict[str, str], left: list[str]
) -> None:
    amd_machine(tmp_path)

    gpus = AmdGpus(tmp_path, env)

    assert [each.id for each in gpus.find().devices] == left
    assert [use.id for use in gpus.uses()] == left


def test_a_machine_without_amds_driver_has_none(tmp_path: Path) -> None:
    gpus = AmdGpus(tmp_path)

    assert gpus.find().devices == ()
    assert gpus.uses() == []


def test_a_mac_has_one_gpu_that_shares_its_memory() -> None:
    assert AppleGpus(MAC).find().devices == (
        Device("apple0", "apple", "APPLE-M2-MAX", 48 * GIB),
    )


@pytest.mark.parametrize("told", [b"", b"[]", b'{"SPDisplaysDataType": [7]}', MAC[:90]])
def test_what_is_no_profile_has_no_gpu(told: bytes) -> None:
    assert AppleGpus(told).find().devices == ()


def test_a_declared_gpu_may_name_its_vendor() -> None:
    first, second = declared_gpus("0,1", "amd:mi300x,A100").devices

    assert (first.vendor, first.model) == ("amd", "MI300X")
    assert (second.vendor, second.model) == ("nvidia", "A100")
    assert list(declared_gpus("0,1", "amd:mi300x,A100").files) == ["1"]
    with pytest.raises(UsageError) as caught:
        declared_gpus("0", "voodoo:2")
    assert caught.value.what == "--models has the vendor 'VOODOO'"
