"""Whom an engine runs containers as, and with what its client is called."""

from itertools import pairwise
from pathlib import Path

from tests.unit.drivers.orders import order

from shoal.drivers.container import container_argv
from shoal.drivers.container_engines import Engine, client_env, engine_of, no_daemon

DOCKER = "/usr/bin/docker"
PODMAN = "/usr/bin/podman"


def test_for_a_root_node_the_image_says_who_its_program_is() -> None:
    assert engine_of("docker", DOCKER, "[]", 0, 0).user == ""
    assert engine_of("podman", PODMAN, "", 0, 0).user == ""


def test_a_node_that_is_not_root_gets_files_that_are_its_own() -> None:
    assert engine_of("docker", DOCKER, '["name=seccomp"]', 1000, 100).user == "1000:100"


def test_the_root_of_an_engine_without_root_is_the_node_itself() -> None:
    rootless = '["name=seccomp,profile=builtin","name=rootless"]'

    assert engine_of("docker", DOCKER, rootless, 1000, 1000).user == "0:0"
    assert engine_of("podman", PODMAN, "podman version 5", 1000, 1000).user == "0:0"


def test_without_root_limits_need_new_cgroups(tmp_path: Path) -> None:
    new = tmp_path / "cgroup.controllers"
    old = str(tmp_path / "none")
    new.touch()

    assert not engine_of("podman", PODMAN, "", 1000, 1000, cgroups=old).limits
    assert engine_of("podman", PODMAN, "", 1000, 1000, cgroups=str(new)).limits
    assert engine_of("podman", PODMAN, "", 0, 0, cgroups=old).limits
    assert engine_of("docker", DOCKER, "[]", 1000, 1000, cgroups=old).limits


def test_docker_says_whether_selinux_keeps_containers_apart() -> None:
    assert engine_of("docker", DOCKER, '["name=selinux"]', 0, 0).labelled
    assert not engine_of("docker", DOCKER, '["name=seccomp"]', 0, 0).labelled


def test_the_user_is_asked_of_the_engine() -> None:
    here = Path("/tasks")
    found = container_argv(
        Engine("docker", DOCKER, user="1000:100"),
        order("true", image="i"),
        directory=here,
        socket=here / "s",
        env_file=here / "e",
        mark="m",
    )

    assert ("--user", "1000:100") in pairwise(found)


def test_a_client_gets_what_its_owner_says_and_nothing_else_of_the_node() -> None:
    ours = {"HOME": "/home/ada", "XDG_RUNTIME_DIR": "/run/user/7", "TOKEN": "secret"}

    found = client_env(ours)

    assert found["HOME"] == "/home/ada"
    assert found["XDG_RUNTIME_DIR"] == "/run/user/7"
    assert "TOKEN" not in found


def test_docker_is_not_asked_where_it_has_no_socket(tmp_path: Path) -> None:
    env, socket = {"HOME": str(tmp_path)}, tmp_path / "docker.sock"

    assert "docker does not answer" in no_daemon(env, str(socket))

    assert no_daemon({**env, "DOCKER_HOST": "tcp://far:2375"}, str(socket)) == ""
    assert no_daemon({**env, "DOCKER_CONTEXT": "far"}, str(socket)) == ""
    socket.touch()
    assert no_daemon(env, str(socket)) == ""
    assert no_daemon({**env, "XDG_RUNTIME_DIR": str(tmp_path)}, "/nowhere") == ""


def test_docker_is_asked_where_its_client_knows_of_other_places(tmp_path: Path) -> None:
    (tmp_path / ".docker" / "contexts").mkdir(parents=True)
    (tmp_path / "far" / "contexts").mkdir(parents=True)
    env = {"HOME": str(tmp_path)}

    assert no_daemon(env, "/nowhere") == ""
    assert no_daemon({**env, "DOCKER_CONFIG": str(tmp_path / "far")}, "/nowhere") == ""
    assert no_daemon({**env, "DOCKER_CONFIG": str(tmp_path)}, "/nowhere") != ""
