"""The variables of a task."""

import json

from tests.unit.drivers.orders import order

from shoal.drivers import RunOrder, TaskMount
from shoal.drivers.environment import PORT_FIRST, variables
from shoal.model.resources import Allocation, DeviceShare


def of(one: RunOrder, *, renumbered: bool = False) -> dict[str, str]:
    return variables(one, mark="m", home="/w", socket="/s", renumbered=renumbered)


def test_a_task_alone_is_rank_0_of_1() -> None:
    found = of(order("true", index=7))

    assert (found["RANK"], found["WORLD_SIZE"]) == ("0", "1")
    assert (found["NODE_RANK"], found["NUM_NODES"]) == ("0", "1")
    assert found["MASTER_ADDR"] == found["NODE_IPS"] == "127.0.0.1"
    assert found["SHOAL_TASK_INDEX"] == "7"


def test_a_member_of_a_gang_knows_the_others() -> None:
    found = of(order("true", index=1, addresses=("10.0.0.1", "10.0.0.2")))

    assert (found["RANK"], found["WORLD_SIZE"]) == ("1", "2")
    assert found["MASTER_ADDR"] == "10.0.0.1"
    assert found["NODE_IPS"] == "10.0.0.1\n10.0.0.2"


def test_all_members_of_a_gang_agree_on_a_port_below_the_kernels_own() -> None:
    both = ("10.0.0.1", "10.0.0.2")
    ranks = [of(order("true", index=n, addresses=both)) for n in range(2)]
    alone = [int(of(order("true", index=n))["MASTER_PORT"]) for n in range(1_000)]

    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"]
    assert min(alone) >= PORT_FIRST
    assert max(alone) < 32_768
    assert len(set(alone)) > 900, "tasks of one array would take each other's port"


def test_torchrun_needs_no_flags_and_a_job_may_set_its_own() -> None:
    shares = (DeviceShare("2", 1_000, 0), DeviceShare("5", 1_000, 0))
    both = ("10.0.0.1", "10.0.0.2")
    found = of(
        order("true", index=1, addresses=both, allocation=Allocation(shares=shares))
    )
    own = of(order("true", env={"PET_NPROC_PER_NODE": "4", "GLOO_SOCKET_IFNAME": "x"}))

    assert (found["PET_NNODES"], found["PET_NODE_RANK"]) == ("2", "1")
    assert found["PET_NPROC_PER_NODE"] == "2"
    assert found["PET_MASTER_ADDR"] == "10.0.0.1"
    assert found["PET_MASTER_PORT"] == found["MASTER_PORT"]
    assert of(order("true"))["PET_NNODES"] == "1"
    assert (own["PET_NPROC_PER_NODE"], own["GLOO_SOCKET_IFNAME"]) == ("4", "x")


def test_torch_uses_the_interface_that_leads_to_the_others() -> None:
    here = ("127.0.0.1", "127.0.0.1")

    assert of(order("true", addresses=here))["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in of(order("true"))


def test_devices_are_named_and_no_device_is_named_too() -> None:
    shares = (DeviceShare("2", 1_000, 0), DeviceShare("5", 1_000, 0))
    one = order("true", allocation=Allocation(shares=shares))

    assert of(one)["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert of(one)["GPUS_PER_NODE"] == "2"
    assert of(order("true"))["CUDA_VISIBLE_DEVICES"] == ""
    assert of(one)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_devices_that_alone_can_be_opened_count_from_0() -> None:
    shares = (DeviceShare("2", 1_000, 0), DeviceShare("5", 1_000, 0))
    one = order("true", allocation=Allocation(shares=shares))

    assert of(one, renumbered=True)["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_threads_follow_the_cpus_unless_the_job_says_otherwise() -> None:
    def threads(cpu_milli: int, **env: str) -> str:
        allocation = Allocation(cpu_milli=cpu_milli)
        return of(order("true", allocation=allocation, env=env))["OMP_NUM_THREADS"]

    assert [threads(0), threads(500), threads(3_500)] == ["1", "1", "3"]
    assert threads(3_500, OMP_NUM_THREADS="8") == "8"


def test_a_module_is_found_after_those_of_the_job() -> None:
    mount = TaskMount(source="/opt/lib/shoal", place="/run/lib/shoal", module=True)
    plain = of(order("true", seen=(mount,)))
    own = of(order("true", seen=(mount,), env={"PYTHONPATH": "src"}))

    assert plain["PYTHONPATH"] == "/opt/lib"
    assert own["PYTHONPATH"] == "src:/opt/lib"
    assert "PYTHONPATH" not in of(order("true"))


def test_a_job_cannot_forge_who_it_is() -> None:
    env = {"SHOAL_WORKER": "x", "SHOAL_JOB_ID": "x", "CUDA_VISIBLE_DEVICES": "0"}

    found = of(order("true", env=env))

    assert found["SHOAL_WORKER"] == "m"
    assert found["SHOAL_JOB_ID"] == "j"
    assert found["CUDA_VISIBLE_DEVICES"] == ""


def test_secrets_that_a_job_named_are_given_and_no_others() -> None:
    one = order("true", secrets=("A",), given={"A": "1", "B": "2"})

    found = of(one)

    assert found["A"] == "1"
    assert "B" not in found


def test_params_are_given_as_json() -> None:
    assert json.loads(of(order("true", params={"lr": 0.1}))["SHOAL_PARAMS"]) == {
        "lr": 0.1
    }
    assert "SHOAL_PARAMS" not in of(order("true"))
