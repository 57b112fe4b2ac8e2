"""The first five minutes with `shoal`, with real processes and nothing mocked."""

import json
import os
import pty
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import connect
from shoal.runtime.home import Home

pytestmark = pytest.mark.integration

ID = re.compile(r"[0-9a-z]{6}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    """One node for all tests that do not end it."""
    with homes(tmp_path_factory.mktemp("cli")) as make:
        home = make("one")
        home.ok("up", "--background")  # It is asked about its files, too.
        yield home


def test_the_first_command_starts_a_node_and_prints_what_the_job_wrote(
    fresh: Callable[[str], CliHome],
) -> None:
    shoal = fresh("new")

    # It must be seen running, to be said where.
    script = 'import time; time.sleep(1); print("hello")'
    first = shoal("run", "--", "python", "-c", script)

    assert first.code == 0
    assert first.out == "hello\n"
    assert first.err.startswith("no node running: started one in the background")
    assert re.search(r"node  [a-z]+-[a-z]+-\d\d   12D3KooW", first.err)
    assert re.search(r"job \w{6} placed on [a-z]+-[a-z]+-\d\d in ", first.err)
    assert re.search(r"job \w{6} finished in [\d.]+ s \(exit 0\)", first.err)
    assert first.err.splitlines()[-1].startswith("next: shoal ps")
    assert "done" in shoal.ok("ps")
    petname = shoal.info["petname"]
    assert shoal("down").err.startswith(f"{petname} has stopped")


def test_run_exits_with_the_code_of_the_job_and_keeps_streams_apart(
    home: CliHome,
) -> None:
    done = home("run", "-q", "--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert done == (7, "out\n", "err\n")


def test_a_signal_that_ends_a_job_is_told_as_a_shell_tells_it(home: CliHome) -> None:
    assert home("run", "-q", "--", "sh", "-c", "kill -9 $$").code == 137


def test_who_submits_at_a_terminal_sees_the_offers(home: CliHome) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        ["shoal", "submit", "--", "true"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=home.env,
        check=True,
    )
    seen = os.read(ours, 65_536).decode()
    os.close(theirs)
    os.close(ours)

    assert ID.fullmatch(done.stdout.decode().strip())
    assert re.search(r"^offers: .*\r$", seen, re.MULTILINE), seen


def test_a_script_sees_offers_only_if_it_asks(home: CliHome) -> None:
    assert "offers:" not in home("submit", "--", "true").err
    assert "offers" not in json.loads(home.ok("submit", "--json", "--", "true"))
    assert home("submit", "-q", "--offers", "--", "true").err == ""

    words = ("--json", "--offers", "--gpus", "7", "--", "true")
    asked = json.loads(home.ok("submit", *words))
    home.ok("cancel", asked["job"]["id"])

    [group] = asked["offers"]["groups"]
    assert not asked["offers"]["fits_now"]
    assert group["prospects"][0]["when"] == "never"


def test_a_plan_counts_the_room_that_the_last_job_has_just_left(
    fresh: Callable[[str], CliHome],
) -> None:
    shoal = fresh("kept")
    shoal.up("--port", "0")
    [node] = shoal.json("nodes")["nodes"]
    words = ("--cpu", f"{node['total']['cpu_milli'] / 1000:g}", "--", "true")
    shoal.ok("run", "-q", *words)

    planned = shoal("plan", *words)
    other = shoal("plan", "--cpu", "0.5", "--", "true")  # Its lease would give way.

    assert planned.code == 0, planned
    assert other.code == 0, other


def test_submit_prints_the_id_alone_on_stdout(home: CliHome) -> None:
    done = home("submit", "--", "true")

    assert ID.fullmatch(done.out.strip())
    assert "next: shoal logs -f" in done.err
    assert home("wait", done.out.strip()).code == 0


def test_logs_follow_a_job_to_its_end(home: CliHome) -> None:
    script = "for n in 1 2 3; do echo $n; sleep 0.3; done"
    job = home.ok("submit", "-q", "--", "sh", "-c", script).strip()

    assert home.ok("logs", "-f", job) == "1\n2\n3\n"
    assert home.ok("logs", job) == "1\n2\n3\n"


def test_lines_of_several_tasks_say_whose_they_are(home: CliHome) -> None:
    done = home("run", "-q", "--array", "3", "--", "sh", "-c", "echo I am {index}")

    assert done.code == 0
    assert sorted(done.out.splitlines()) == [
        "main.0 | I am 0",
        "main.1 | I am 1",
        "main.2 | I am 2",
    ]


def test_of_many_tasks_show_lists_some_and_counts_all(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--array", "5", "--", "true").strip()
    assert home("wait", job).code == 0

    some, all_ = home.ok("show", job, "--tasks", "2"), home.ok("show", job)

    assert "tasks      5 done\n" in some
    assert f"and 3 more: shoal show {job} --tasks 5\n" in some
    assert "more:" not in all_
    assert "main.4" in all_


def test_a_job_is_cancelled_and_stays_so(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--", "sleep", "100").strip()

    assert home("wait", job, "--timeout", "300ms").code == 101
    assert "is cancelled" in home("cancel", job, "--reason", "wrong lr").err
    assert home("wait", job).code == 103
    assert home.json("show", job)["job"]["reason"] == "wrong lr"
    assert "had already ended" in home("cancel", job).err


def test_interrupting_run_cancels_the_job(home: CliHome) -> None:
    script = "echo up; sleep 100"
    running = home.start("run", "--", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"

    running.send_signal(2)
    _, err = running.communicate(timeout=120)

    assert running.returncode == 103
    assert "cancelling job" in err


def test_a_job_that_fits_nowhere_is_explained(
    fresh: Callable[[str], CliHome],
) -> None:
    home = fresh("idle")  # On a busy node, lack of CPUs may be named first.
    home.up()
    job = home.ok("submit", "-q", "--gpus", "8", "--", "true").strip()

    text = home.ok("explain", job)
    [task] = home.json("explain", job)["tasks"]

    assert "why    no node has a GPU" in text
    assert task["state"] == "waiting"
    assert task["fitting"] == 0
    assert task["rejected"][0]["reason"] == "has no GPU"


def test_a_job_that_waits_says_for_what_wherever_it_is_shown(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--gpus", "3", "--", "true").strip()
    try:
        listed = {each["id"]: each for each in home.json("ps")["jobs"]}
        watched = home.ok("top", "-1")
        shown = home.json("show", job)["job"]
    finally:
        home.ok("cancel", job)

    assert listed[job]["reason"] == shown["reason"] == "no node has a GPU"
    [line] = [line for line in watched.splitlines() if line.startswith(job)]
    assert line.endswith("no node has a GPU")
    assert home.json("show", job)["job"]["reason"] == ""  # Nobody gave one.


def test_a_job_that_leaves_no_output_is_done_and_says_so(home: CliHome) -> None:
    done = home("run", "--no-pull", "--output", "model.pt", "--", "true")

    assert done.code == 0
    assert "(exit 0): output 'model.pt' was not there" in done.err


def test_the_exit_code_comes_before_a_missing_output(home: CliHome) -> None:
    done = home("run", "--output", "model.pt", "--", "sh", "-c", "echo no >&2; exit 4")
    [task] = home.json("explain", "last")["tasks"]

    assert done.code == 4
    assert "model.pt" not in done.err
    assert task["why"][0].startswith("exit code 4: no (1 attempt")


def test_a_job_that_goes_on_is_shown_however_many_came_after_it(home: CliHome) -> None:
    long = home.ok("submit", "-q", "--name", "long", "--", "sleep", "100").strip()
    try:
        with connect(home=Home(home.path)) as client:
            for n in range(22):
                spec = '{"command": ["true"]}'
                client.submit(pb.SubmitRequest(job_id=f"later-{n}", json=spec))
        home.ok("wait", *(f"later-{n}" for n in range(22)))
        listed = home("ps")
    finally:
        home.ok("cancel", long)

    first = listed.out.splitlines()[1]
    assert first.split()[1:4] == [long, "long", "running"]
    assert len(listed.out.splitlines()) == 22  # With the headings, and the last 20.
    assert "older ones: shoal ps --all" in listed.err
    assert long not in home("ps").out


def test_a_program_that_is_nowhere_is_said_and_was_placed_nowhere(
    home: CliHome,
) -> None:
    words = ("--retries", "2", "--", "no-such-program")
    done = home("run", *words)

    assert done.code == 100
    assert "placed on" not in done.err
    assert "failed after" in done.err
    assert "no such program" in done.err


def test_ids_may_be_shortened_and_last_is_the_last(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--name", "short", "--", "true").strip()

    assert home.json("show", job[:5])["job"]["name"] == "short"
    assert home.json("show", "last")["job"]["id"] == job
    assert home.json("show")["job"]["id"] == job


def test_the_json_of_ps_tells_of_a_job(home: CliHome) -> None:
    home.ok("run", "-q", "--name", "fields", "--priority", "3", "--", "true")

    job = home.json("ps")["jobs"][-1]

    assert job["name"] == "fields"
    assert job["state"] == "done"
    assert job["exit_code"] == 0
    assert job["priority"] == 3
    assert job["tasks"]["done"] == 1
    assert job["number"] > 0


def test_nodes_shows_what_this_one_lends(home: CliHome) -> None:
    [node] = home.json("nodes")["nodes"]

    assert node["self"]
    assert node["total"]["cpu_milli"] >= 1000
    assert node["petname"] == home.info["petname"]
    assert node["petname"] in home.ok("nodes")


def test_nothing_is_coloured_without_a_terminal(home: CliHome) -> None:
    assert "\033" not in home.ok("ps")


def test_files_of_a_node_are_for_its_user_only(home: CliHome) -> None:
    names = ("node.sock", "node.json", "api.token", "node.key", "node.log")
    paths = [home.path / name for name in names if (home.path / name).exists()]

    assert len(paths) >= 4
    for path in [home.path, *paths]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_doctor_finds_a_running_node(home: CliHome) -> None:
    document = json.loads(home("doctor", "--json").out)
    findings = {finding["what"]: finding for finding in document["findings"]}

    assert findings["node"]["state"] == "ok"
    assert findings["port"]["state"] == "ok"
    assert {"home", "clock", "sandbox", "gpu", "disk"} <= findings.keys()
    for finding in findings.values():
        assert finding["state"] == "ok" or finding["fix"]


def test_a_spec_in_a_file_is_changed_by_flags(home: CliHome, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("name: sum\ncommand: [echo, '{a}', '{b}']\nparams: {a: 1, b: 2}\n")

    assert home.ok("run", "-q", str(spec), "-p", "b=5") == "1 5\n"


def test_a_task_of_the_first_scheduler_is_taken(home: CliHome, tmp_path: Path) -> None:
    config = tmp_path / "task.json"
    config.write_text('{"name": "R", "required_gpus": 2, "min_gpu_memory": 8192}')

    job = home.ok("submit", "-q", "--config", str(config)).strip()

    assert home.json("show", job)["job"]["name"] == "R"
    assert home.json("show", job)["job"]["state"] == "waiting"
    home.ok("cancel", job)


def test_a_job_of_a_recipe_says_which_program_it_runs(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--name", "ResNet50 Training", "--gpus", "2").strip()
    shown = home.ok("show", job)
    [task] = home.json("show", job)["tasks"]
    home.ok("cancel", job)

    assert "recipe     train\n" in shown
    assert (task["recipe"], task["argv"]) == ("train", [])


def test_what_failed_of_a_job_runs_again_as_a_new_one(home: CliHome) -> None:
    script = "echo $SHOAL_TASK_INDEX; test $SHOAL_TASK_INDEX -ne 1"
    job = home.ok("submit", "-q", "--array", "3", "--", "sh", "-c", script).strip()
    assert home("wait", job).code == 1

    new = home.ok("retry", "-q", "--failed", job).strip()

    assert home("wait", new).code == 1
    assert home.ok("logs", new) == "1\n"
    assert home("retry", "--failed", "nope").code == 102


def test_a_job_that_is_done_has_nothing_left_to_retry(home: CliHome) -> None:
    home.ok("run", "-q", "--", "true")

    done = home("retry", "--failed", "last")

    assert done.code == 1
    assert "all its tasks are done" in done.err
    assert home("retry", "last").code == 0


def test_jobs_have_numbers_which_name_them_too(
    fresh: Callable[[str], CliHome],
) -> None:
    home = fresh("numbers")
    home.up()
    jobs = [home.ok("submit", "-q", "--", "echo", str(n)).strip() for n in range(4)]

    assert home("wait", "1-2,4").code == 0
    assert home.ok("logs", "3") == "2\n"
    assert [job["number"] for job in home.json("ps")["jobs"]] == [1, 2, 3, 4]
    cancelled = home.json("cancel", "1-2,4")["jobs"]
    assert [job["id"] for job in cancelled] == [jobs[0], jobs[1], jobs[3]]
    home.kill()
    home.up()
    again = home.json("show", home.ok("submit", "-q", "--", "true").strip())
    assert again["job"]["number"] == 5
    assert home("show", "17").code == 102


def test_when_and_where_a_job_ran_is_known_after_a_crash(
    fresh: Callable[[str], CliHome],
) -> None:
    home = fresh("history")
    home.up()
    began = time.time()
    job = home.ok("submit", "-q", "--array", "2", "--", "sleep", "1").strip()
    assert home("wait", job).code == 0
    before = home.json("show", job)
    name = home.info["petname"]

    home.kill()
    home.up()
    after = home.json("show", job)
    shown = home.ok("show", job)

    assert after == before
    assert began - 1 < after["job"]["began_s"] < after["job"]["ended_s"] - 0.9
    assert [task["nodes"][0]["petname"] for task in after["tasks"]] == [name, name]
    assert all(task["ended_s"] - task["began_s"] > 0.9 for task in after["tasks"])
    took = after["job"]["ended_s"] - after["job"]["began_s"]
    assert f"took       {took:.1f} s" in shown
