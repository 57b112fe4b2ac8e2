"""GPU models as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers.gpus.models import short_model
from shoal.model.gpu import parse_gpu
from shoal.model.text.bounds import NAME_LENGTH_MAX

NAMES = {
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-PCIE-40GB": "A100",
    "NVIDIA A100 80GB PCIe": "A100",
    "A100-SXM-80GB": "A100",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100",
    "NVIDIA H100 NVL": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA B200": "B200",
    "NVIDIA GB10": "GB10",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A40": "A40",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-32GB": "V100",
    "Tesla V100-PCIE-16GB": "V100",
    "Tesla P100-PCIE-16GB": "P100",
    "Tesla K80": "K80",
    "GeForce RTX 3090": "RTX3090",
    "NVIDIA GeForce RTX 3090": "RTX3090",
    "NVIDIA GeForce RTX 3090 Ti": "RTX3090TI",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX4070TISUPER",
    "NVIDIA GeForce RTX 4090": "RTX4090",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "RTX4090LAPTOP",
    "NVIDIA GeForce RTX 2080 SUPER with Max-Q Design": "RTX2080SUPER",
    "GeForce GTX 1080 Ti": "GTX1080TI",
    "NVIDIA TITAN RTX": "TITANRTX",
    "TITAN V": "TITANV",
    "NVIDIA TITAN Xp": "TITANXP",
    "NVIDIA RTX A6000": "A6000",
    "NVIDIA RTX A4000": "A4000",
    "NVIDIA RTX 6000 Ada Generation": "RTX6000ADA",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTXPRO6000",
    "Quadro RTX 8000": "RTX8000",
    "Quadro P4000": "P4000",
    "NVIDIA T1000 8GB": "T1000",
    "AMD Instinct MI300X": "MI300X",
    "AMD Radeon RX 7900 XTX": "RX7900XTX",
    "Orin (nvgpu)": "ORIN",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gets_its_short_name(name: str) -> None:
    assert short_model(name) == NAMES[name]


@pytest.mark.parametrize("short", sorted(set(NAMES.values())))
def test_a_job_can_ask_for_a_short_name(short: str) -> None:
    need = parse_gpu(f"{short}:2")

    assert need is not None
    assert need.models == (short,)


def test_a_name_that_says_nothing_is_no_model() -> None:
    assert short_model("NVIDIA Graphics Device") == ""
    assert short_model("") == ""


@given(st.text(max_size=300))
def test_any_name_becomes_one_that_a_message_can_hold(name: str) -> None:
    short = short_model(name)

    assert len(short) <= NAME_LENGTH_MAX
    assert short.isascii()
    assert short == short_model(short) or short_model(short)[:1] == short[:1]
