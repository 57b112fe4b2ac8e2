"""Tasks in containers, where an engine answers."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.integration.cli_home import CliHome
from tests.unit.drivers.orders import Watched, order

from shoal.drivers import Calls
from shoal.drivers.container import ContainerDriver
from shoal.drivers.container_engines import Engine, find_engine
from shoal.drivers.process import ProcessSettings
from shoal.errors import ShoalError
from shoal.protocol.messages import Outcome

pytestmark = pytest.mark.integration

IMAGE = "busybox"
FOUND = asyncio.run(find_engine())
TELL = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Write all of the input to SHOAL_SOCKET, then print so many lines of answers. */
int main(int argc, char **argv) {
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int line = socket(AF_UNIX, SOCK_STREAM, 0), wanted = atoi(argv[1]);
    char data[4096];
    ssize_t size;
    strncpy(where.sun_path, getenv("SHOAL_SOCKET"), sizeof where.sun_path - 1);
    if (connect(line, (struct sockaddr *)&where, sizeof where) != 0) {
        perror("connect");
        return 1;
    }
    while ((size = read(0, data, sizeof data)) > 0)
        if (write(line, data, size) != size) return 2;
    while (wanted > 0 && (size = read(line, data, 1)) == 1) {
        if (write(1, data, 1) != 1) return 3;
        wanted -= data[0] == '\n';
    }
    return wanted != 0;
}
"""
GOES_ON = """
if [ -z "$SHOAL_CHECKPOINT" ]; then
    mkdir ckpt && echo 7 > ckpt/step
    echo '{"call": "checkpoint", "path": "ckpt"}' | ./tell 1
    exit 33
fi
mkdir out && echo "$SHOAL_CHECKPOINT" $(cat ckpt/step) > out/answer
echo '{"metrics": {"loss": 0.125}, "progress": 1}' | ./tell 0
"""


def engine() -> Engine:
    if isinstance(FOUND, str):
        pytest.skip(f"containers are not tested: {FOUND}")
    return FOUND


def test_without_an_engine_the_reason_is_said() -> None:
    if not isinstance(FOUND, str):
        pytest.skip("an engine answers here")

    assert FOUND.startswith(("neither docker nor podman", "docker ", "podman "))


def run(
    root: Path,
    *argv: str,
    image: str = IMAGE,
    setup: tuple[str, ...] = (),
    user: str = "",
    calls: Calls | None = None,
    files: Sequence[Path] = (),
) -> tuple[Outcome, Watched]:
    """Run a command in a container; `files` are in its work directory."""

    async def main() -> tuple[Outcome, Watched]:
        watched = Watched()
        found = msgspec.structs.replace(engine(), user=user)
        driver = ContainerDriver(root, found, ProcessSettings())
        await driver.open()
        one = order(*argv, image=image, setup=setup)
        work = driver.prepare(one.attempt)
        for file in files:
            shutil.copy(file, work)
        try:
            given = msgspec.structs.replace(one, directory=work, calls=calls)
            outcome = await driver.run(given, watched)
        finally:
            await driver.close()
        return outcome, watched

    return asyncio.run(main())


@pytest.fixture(scope="module")
def tell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that runs in every image and talks to the task's socket."""
    engine()
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler for what talks to the socket")
    source = tmp_path_factory.mktemp("tell") / "tell.c"
    source.write_text(TELL)
    program = source.with_suffix("")
    subprocess.run([compiler, "-static", "-o", program, source], check=True)
    return program


@pytest.fixture(scope="module")
def image_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return an image whose program is user 4321, who owns nothing anywhere."""
    name = f"localhost/shoal-test-nobody-{os.getpid()}"
    file = tmp_path_factory.mktemp("image") / "Dockerfile"
    file.write_text(f"FROM {IMAGE}\nUSER 4321:4321\n")
    build = [
        engine().path,
        "build",
        "--network",
        "none",
        "--tag",
        name,
        "--file",
        str(file),
    ]
    done = subprocess.run(
        [*build, str(file.parent)], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no image can be built here: {done.stderr.strip()[-200:]}")
    try:
        yield name
    finally:
        subprocess.run(
            [engine().path, "rmi", "--force", name], check=False, capture_output=True
        )


def test_figures_come_out_of_a_container_as_lines_of_json(
    tmp_path: Path, tell: Path
) -> None:
    lines = '{"metrics": {"loss": 0.25}, "step": 7}\n{"progress": 0.5}'

    outcome, watched = run(
        tmp_path, "sh", "-c", f"echo '{lines}' | ./tell 0", files=[tell]
    )

    assert outcome.exit_code == 0, watched.text("stderr")
    assert watched.figures == [(0.5, {"loss": 0.25, "step": 7.0})]


def test_calls_of_a_container_are_answered(tmp_path: Path, tell: Path) -> None:
    asked: list[Mapping[str, object]] = []

    async def calls(call: Mapping[str, object]) -> dict[str, object]:
        asked.append(call)
        return {"tree": "abc"}

    call = '{"call": "checkpoint", "path": "ckpt"}'
    outcome, watched = run(
        tmp_path,
        *("sh", "-c", f"echo '{call}' | ./tell 1"),
        files=[tell],
        calls=calls,
    )

    assert outcome.exit_code == 0, watched.text("stderr")
    assert asked == [{"call": "checkpoint", "path": "ckpt"}]
    assert watched.text() == '{"tree": "abc"}\n'


def test_whoever_the_image_says_can_report_and_write_its_work_directory(
    tmp_path: Path, tell: Path, image_of_nobody: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("containers of other nodes run as the node's user")
    script = "id -u; echo mine > made; echo more >> given; echo '{}' | ./tell 0"
    given = tmp_path / "given"
    given.write_text("")

    outcome, watched = run(
        tmp_path / "root",
        *("sh", "-c", script),
        image=image_of_nobody,
        files=[tell, given],
    )

    assert (outcome.exit_code, watched.text()) == (0, "4321\n"), watched.pieces
    assert watched.figures == [(None, {})]


def test_a_container_that_runs_as_the_user_of_the_node_has_a_closed_folder(
    tmp_path: Path, tell: Path
) -> None:
    script = "stat -c %a . $SHOAL_SOCKET; echo '{\"progress\": 1}' | ./tell 0"
    uid = 0 if engine().user == "0:0" else os.geteuid()

    outcome, watched = run(
        tmp_path, "sh", "-c", script, files=[tell], user=f"{uid}:{uid}"
    )

    assert outcome.exit_code == 0, watched.text("stderr")
    assert watched.text() == "700\n600\n"
    assert watched.figures == [(1.0, {})]


def test_of_the_node_a_container_sees_one_socket_and_cannot_change_it(
    tmp_path: Path,
) -> None:
    script = "find /run -type s; rm $SHOAL_SOCKET; chmod 777 $SHOAL_SOCKET; mount"

    _, watched = run(tmp_path, "sh", "-c", script)

    socket, *mounts = watched.text().splitlines()
    assert socket == "/run/shoal.sock"
    said = watched.text("stderr")
    assert "busy" in said.lower()
    assert "read-only" in said.lower()
    ours = [m.split()[2] for m in mounts if " /job" in m or "shoal" in m]
    assert sorted(ours) == ["/job", "/run/shoal.sock"]


def test_an_image_that_looks_like_an_option_is_refused(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, IMAGE, "cat", "/host/etc/passwd", image="-v=/:/host")

    assert outcome.kind == "not-started"


def test_settings_of_an_engine_in_a_work_directory_are_not_read(
    tmp_path: Path,
) -> None:
    script = tmp_path / "engine"
    script.write_text('#!/bin/sh\necho "$HOME"\n')
    script.chmod(0o755)
    watched = Watched()

    async def main() -> None:
        found = Engine("docker", str(script))
        driver = ContainerDriver(tmp_path / "root", found, ProcessSettings())
        await driver.open()
        try:
            with contextlib.suppress(ShoalError):  # It cannot say what is left.
                await driver.run(order("true", image=IMAGE), watched)
        finally:
            await driver.close()

    asyncio.run(main())

    assert watched.text() == f"{Path.home()}\n"


def test_a_secret_that_was_not_given_is_a_reason_and_no_crash(tmp_path: Path) -> None:
    async def main() -> Outcome:
        driver = ContainerDriver(
            tmp_path, Engine("docker", "/bin/false"), ProcessSettings()
        )
        return await driver.run(order("true", image=IMAGE, secrets=("K",)), Watched())

    outcome = asyncio.run(main())

    assert outcome.kind == "not-started"
    assert outcome.reason == "the worker was not given secret 'K'"


def test_a_container_ends_with_the_exit_code_of_its_program(tmp_path: Path) -> None:
    outcome, watched = run(tmp_path, "sh", "-c", "echo $SHOAL_JOB_ID; pwd; exit 3")

    assert outcome.exit_code == 3
    assert watched.text() == "j\n/job\n"


def test_a_setup_comes_first_and_files_are_those_of_the_work_directory(
    tmp_path: Path,
) -> None:
    outcome, watched = run(
        tmp_path, "cat", "said", setup=("sh", "-c", "echo hi > said")
    )

    assert (outcome.exit_code, watched.text()) == (0, "hi\n")


def test_an_image_that_there_is_not_is_told_in_the_words_of_the_engine(
    tmp_path: Path,
) -> None:
    outcome, _ = run(tmp_path, "true", image="localhost/there-is-no-such-image")

    assert outcome.kind == "not-started"
    assert "there-is-no-such-image" in outcome.reason


def test_a_live_node_runs_jobs_with_an_image(tmp_path: Path) -> None:
    engine()
    home = CliHome(tmp_path)
    try:
        done = home("run", "--image", IMAGE, "--", "sh", "-c", "pwd; exit 4")
    finally:
        home.close()

    assert (done.code, done.out) == (4, "/job\n"), done


def test_a_job_with_an_image_reports_saves_and_goes_on_like_any_other(
    tmp_path: Path, tell: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(tell, work)
    (work / "main.sh").write_text(GOES_ON)
    spec = tmp_path / "job.yaml"
    spec.write_text(
        f"command: sh main.sh\nimage: {IMAGE}\nworkdir: {work}\n"
        "outputs: [out/]\nretry: {max: 1, on: ['exit:33']}\n"
    )
    home = CliHome(tmp_path / "home")
    try:
        done = home("run", "--no-pull", str(spec))
        [task] = home.json("show", "last")["tasks"]
        home("pull", "last", "--to", str(tmp_path / "out"))
    finally:
        home.close()

    assert done.code == 0, done
    assert (task["fraction"], task["metrics"]["loss"]) == (1.0, 0.125)
    assert (tmp_path / "out" / "answer").read_text() == "/job/ckpt 7\n"


def test_a_job_without_an_image_is_not_started(tmp_path: Path) -> None:
    async def main() -> Outcome:
        driver = ContainerDriver(
            tmp_path, Engine("docker", "/bin/false"), ProcessSettings()
        )
        return await driver.run(order("true"), Watched())

    outcome = asyncio.run(main())

    assert (outcome.kind, outcome.reason) == ("not-started", "the job names no image")


def test_an_engine_is_asked_for_leftovers_only_if_there_may_be_some(
    tmp_path: Path,
) -> None:
    asked = tmp_path / "asked"
    script = tmp_path / "engine"
    script.write_text(f"#!/bin/sh\necho $1 >> {asked}\n")
    script.chmod(0o755)

    async def live(*argv: str) -> list[str]:
        driver = ContainerDriver(
            tmp_path / "root", Engine("docker", str(script)), ProcessSettings()
        )
        asked.write_text("")
        await driver.open()
        try:
            if argv:
                await driver.run(order(*argv, image=IMAGE), Watched())
        finally:
            await driver.close()
        return asked.read_text().split()

    assert asyncio.run(live("true")) == ["run", "ps"]
    assert asyncio.run(live()) == ["ps"]
    assert asyncio.run(live()) == []
