"""The command line of a container engine; running one is in tests/integration."""

import stat
from itertools import pairwise
from pathlib import Path

from tests.unit.drivers.orders import order

from shoal.drivers import RunOrder
from shoal.drivers.container import container_argv, env_lines, open_up
from shoal.drivers.container_engines import Engine, Kind
from shoal.model.resources import GIB, Allocation, DeviceShare


def argv(one: RunOrder, kind: Kind = "docker") -> list[str]:
    return argv_by(Engine(kind, f"/usr/bin/{kind}"), one)


def argv_by(engine: Engine, one: RunOrder) -> list[str]:
    return container_argv(
        engine,
        one,
        directory=Path("/tasks/a/work"),
        socket=Path("/tasks/sockets/box0.sock"),
        env_file=Path("/tasks/a/env"),
        mark="m",
    )


def test_a_container_runs_the_words_of_the_command_in_its_image() -> None:
    found = argv(order("python", "-c", "print(1)", image="pytorch/pytorch"))

    assert found[:2] == ["/usr/bin/docker", "run"]
    assert found[-4:] == ["pytorch/pytorch", "python", "-c", "print(1)"]


def test_a_container_has_limits_and_no_capability() -> None:
    allocation = Allocation(cpu_milli=2_500, memory_bytes=GIB)

    pairs = list(pairwise(argv(order("true", image="i", allocation=allocation))))

    assert ("--cpus", "2.5") in pairs
    assert ("--memory", str(GIB)) in pairs
    assert ("--memory-swap", str(GIB)) in pairs
    assert ("--pids-limit", "4096") in pairs
    assert ("--cap-drop", "ALL") in pairs
    assert ("--security-opt", "no-new-privileges") in pairs


def test_the_filter_of_the_engine_is_never_switched_off() -> None:
    for labelled in (False, True):
        engine = Engine("docker", "/usr/bin/docker", labelled=labelled)
        found = argv_by(engine, order("true", image="i"))

        assert not [text for text in found if "unconfined" in text or "seccomp" in text]
        assert "--privileged" not in found
        assert ("--security-opt", "no-new-privileges") in pairwise(found)


def test_neither_a_task_nor_its_image_chooses_gpus() -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": "all"}
    two = Allocation(shares=(DeviceShare("0", 1_000, 0), DeviceShare("3", 1_000, 0)))

    without = env_lines(order("true", image="i", env=env), "m")
    with_some = env_lines(order("true", image="i", env=env, allocation=two), "m")

    assert "NVIDIA_VISIBLE_DEVICES=void\n" in without
    assert "NVIDIA_VISIBLE_DEVICES=0,3\n" in with_some


def test_a_container_has_no_network_unless_it_asks() -> None:
    assert ("--network", "none") in pairwise(argv(order("true", image="i")))
    asked = order("true", image="i", network=True)
    assert ("--network", "bridge") in pairwise(argv(asked))


def test_a_member_of_a_gang_that_asks_has_the_network_of_the_machine() -> None:
    addresses = ("10.0.0.1", "10.0.0.2")
    asked = order("true", image="i", network=True, addresses=addresses)
    silent = order("true", image="i", addresses=addresses)

    assert ("--network", "host") in pairwise(argv(asked))
    assert ("--network", "none") in pairwise(argv(silent))


def test_the_addresses_of_a_gang_come_one_a_line() -> None:
    one = order("true", image="i", addresses=("10.0.0.1", "10.0.0.2"))

    assert ("--env", "NODE_IPS=10.0.0.1\n10.0.0.2") in pairwise(argv(one))


def test_a_container_sees_its_work_directory_and_its_socket_and_no_more() -> None:
    pairs = list(pairwise(argv(order("true", image="i"))))

    volumes = [after for before, after in pairs if before == "--volume"]
    assert volumes == [
        "/tasks/a/work:/job",
        "/tasks/sockets/box0.sock:/run/shoal.sock:ro",
    ]


def test_the_name_of_an_image_is_never_an_option() -> None:
    found = argv(order("sh", image="--volume=/:/host"))

    assert found[-3:] == ["--", "--volume=/:/host", "sh"]


def test_a_container_gets_exactly_its_devices() -> None:
    shares = (DeviceShare("1", 1_000, 0), DeviceShare("3", 1_000, 0))
    one = order("true", image="i", allocation=Allocation(shares=shares))

    assert ("--gpus", '"device=1,3"') in pairwise(argv(one))
    by_podman = list(pairwise(argv(one, "podman")))
    assert ("--device", "nvidia.com/gpu=1") in by_podman
    assert ("--device", "nvidia.com/gpu=3") in by_podman
    assert "--gpus" not in argv(order("true", image="i"))


def test_a_container_can_be_found_again_by_its_labels() -> None:
    one = order("true", image="i")

    labels = [after for before, after in pairwise(argv(one)) if before == "--label"]

    assert labels == ["shoal.worker=m", f"shoal.attempt={one.attempt}"]


def test_variables_go_through_a_file_and_the_path_is_that_of_the_image() -> None:
    one = order("true", image="i", env={"A": "1\n2"}, secrets=("K",), given={"K": "s"})

    lines = env_lines(one, "m").splitlines()

    assert "A=1 2" in lines
    assert "K=s" in lines
    assert "HOME=/job" in lines
    assert "SHOAL_SOCKET=/run/shoal.sock" in lines
    assert not any(line.startswith("PATH=") for line in lines)
    assert "K=s" not in argv(one)


def test_a_path_that_the_job_sets_is_kept() -> None:
    one = order("true", image="i", env={"PATH": "/opt/bin"})

    assert "PATH=/opt/bin" in env_lines(one, "m").splitlines()


def test_a_setup_runs_before_the_command_in_the_same_container() -> None:
    one = order("python", "a b.py", image="i", setup=("pip", "install", "x y"))

    script = "pip install 'x y' && exec python 'a b.py'"
    assert argv(one)[-4:] == ["i", "/bin/sh", "-c", script]


def test_an_engine_without_an_init_is_asked_for_none() -> None:
    one = order("true", image="i")
    bare = Engine("podman", "/usr/bin/podman", init=False)

    assert "--init" in argv(one)
    assert "--init" not in argv_by(bare, one)


def test_selinux_is_told_to_let_a_container_use_its_socket() -> None:
    one = order("true", image="i")
    labelled = Engine("podman", "/usr/bin/podman", labelled=True)

    assert ("--security-opt", "label=disable") in pairwise(argv_by(labelled, one))
    assert "label=disable" not in argv(one)


def test_open_to_all_is_what_lies_in_a_work_directory_and_nothing_behind_links(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    work = tmp_path / "a.work"
    (work / "bin").mkdir(parents=True)
    (work / "bin" / "program").touch(mode=0o755)
    (work / "link").symlink_to(outside)

    open_up(work)

    assert stat.S_IMODE(work.stat().st_mode) == 0o777
    assert stat.S_IMODE((work / "bin").stat().st_mode) == 0o777
    assert stat.S_IMODE((work / "bin" / "program").stat().st_mode) == 0o777
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600
