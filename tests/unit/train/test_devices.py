"""A process computes on the GPU that it was lent, and on the CPU without one."""

import pytest
import torch

from shoal.errors import UsageError
from shoal.train import devices
from shoal.train.gangs import ddp


@pytest.mark.parametrize(
    ("environment", "visible", "name"),
    [
        ({}, 0, "cpu"),
        ({"LOCAL_RANK": "3"}, 0, "cpu"),
        ({}, 2, "cuda:0"),
        ({"LOCAL_RANK": "1"}, 2, "cuda:1"),
    ],
)
def test_each_process_of_a_task_has_a_device_of_its_own(
    environment: dict[str, str], visible: int, name: str
) -> None:
    assert devices.device_name(environment, visible) == name


def test_two_processes_never_share_a_gpu_in_silence() -> None:
    with pytest.raises(UsageError, match="no GPU for process 2"):
        devices.device_name({"LOCAL_RANK": "2"}, 2)


def test_a_task_runs_one_rank_for_each_of_its_gpus() -> None:
    assert ddp.ranks_here({"GPUS_PER_NODE": "2"}) == 2
    assert ddp.ranks_here({"GPUS_PER_NODE": "0"}) == 1
    assert ddp.ranks_here({}) == 1


def test_weights_on_a_gpu_go_by_nccl_and_others_by_gloo() -> None:
    assert devices.backend_of(torch.device("cuda:1")) == "cpu:gloo,cuda:nccl"
    assert devices.backend_of(torch.device("cpu")) == "gloo"


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_only_a_gpu_computes_in_half_precision() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda:0")

    short = devices.precision_of(gpu, "bfloat16")

    assert isinstance(short, torch.autocast)
    assert short.fast_dtype == torch.bfloat16
    assert not isinstance(devices.precision_of(gpu, "float32"), torch.autocast)
    assert not isinstance(devices.precision_of(cpu, "bfloat16"), torch.autocast)
    with pytest.raises(UsageError, match="float16"):
        devices.precision_of(cpu, "float16")


def test_a_cpu_has_free_memory_and_no_figures_of_a_gpu() -> None:
    cpu = torch.device("cpu")

    assert devices.free_bytes(cpu) > 1 << 20
    assert devices.peak_figures(cpu) == {}
