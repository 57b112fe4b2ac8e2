import pytest

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.printing import (
    code_of,
    echo_table,
    end_text,
    gpus_text,
    places,
    shell_code,
    shortened,
    size_text,
    span,
    tasks_text,
)
from shoal.cli.nodes.nodes import HEADINGS, row


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.042, "0.04 s"),
        (3.14, "3.1 s"),
        (59.0, "59 s"),
        (61.0, "1 min 1 s"),
        (3_661.0, "1 h 1 min"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (2_048, "2.0 kB"),
        (3_500_000, "3.5 MB"),
        (12_000_000_000, "12.0 GB"),
    ],
)
def test_a_size_is_told_in_a_unit_that_shows_it(amount: int, text: str) -> None:
    assert size_text(amount) == text


def test_gpus_are_named_as_a_job_would_ask_for_them() -> None:
    card = pb.Device(model="RTX3090", memory_bytes=24 << 30)

    assert gpus_text([card, card, pb.Device(model="A100")]) == "RTX3090:24GB:2, A100:1"
    assert gpus_text([]) == "no GPU"


def test_many_places_are_shortened() -> None:
    names = [pb.NodeName(petname=name) for name in ("a", "b", "c")]

    assert places(names[:2]) == "a, b"
    assert places(names) == "a +2"


def test_a_long_command_becomes_one_line() -> None:
    assert shortened("python -c 'a\n  b'") == "python -c 'a b'"
    assert shortened("x" * 101) == "x" * 99 + "…"
    assert shortened("x" * 100) == "x" * 100


def test_tasks_are_counted_when_there_are_several() -> None:
    assert tasks_text(pb.Counts(done=1)) == "1 task"
    assert tasks_text(pb.Counts(done=1, running=2)) == "1/3"


def test_columns_are_as_wide_as_their_widest_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo_table(("JOB", "STATE"), [("longer", "done"), ("x", "")])

    assert capsys.readouterr().out == "JOB     STATE\nlonger  done\nx\n"


def test_letters_that_are_two_columns_wide_do_not_push_a_table_out_of_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("日本", "done"), ("abcd", "done"), ("e\u0301t\u00e9", "done")]

    echo_table(("JOB", "STATE"), rows)

    _, wide, plain, accents = capsys.readouterr().out.splitlines()
    assert wide == "日本  done"
    assert plain == "abcd  done"
    assert accents == "e\u0301t\u00e9   done"


def test_a_narrow_terminal_gets_no_heading_over_an_empty_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "12")

    echo_table(("JOB", "WHY"), [("1234567890", "")])

    assert capsys.readouterr().out == "JOB\n1234567890\n"


def test_a_node_is_shown_with_what_is_in_use_of_it() -> None:
    card = pb.Device(model="RTX3090", memory_bytes=24 << 30)
    node = pb.Node(
        worker=True,
        total=pb.Amounts(cpu_milli=8_000, memory_bytes=32 << 30, gpu_milli=2_000),
        free=pb.Amounts(cpu_milli=7_000, memory_bytes=30 << 30, gpu_milli=500),
        devices=[card, card],
    )

    said = dict(zip(HEADINGS, row(node), strict=True))

    assert said["CPU"] == "1/8"
    assert said["MEMORY"] == "2/32 GiB"
    assert said["GPU"] == "1.5/2 RTX3090:24GB:2"


def test_a_terminal_cuts_the_last_column_at_its_edge(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "24")

    echo_table(("JOB", "WHY"), [("longer", "no room for so many words")])

    assert capsys.readouterr().out == "JOB     WHY\nlonger  no room for so…\n"


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (pb.Job(state=pb.STATE_DONE, exit_code=0), 0),
        (pb.Job(state=pb.STATE_FAILED, exit_code=7), 7),
        (pb.Job(state=pb.STATE_FAILED, exit_code=-9), 137),
        (pb.Job(state=pb.STATE_FAILED), 100),
        (pb.Job(state=pb.STATE_UNKNOWN), 100),
        (pb.Job(state=pb.STATE_RUNNING), 101),
        (pb.Job(state=pb.STATE_CANCELLED), 103),
    ],
)
def test_the_end_of_a_job_is_an_exit_code(job: pb.Job, code: int) -> None:
    assert code_of(job) == code


def test_the_end_of_a_job_names_more_than_its_code_if_there_is_more_to_say() -> None:
    failed = pb.Job(id="7k2f9q", state=pb.STATE_FAILED, exit_code=143)

    assert end_text(failed) == "job 7k2f9q failed (exit 143)"
    failed.reason = "exit code 143"
    assert end_text(failed) == "job 7k2f9q failed (exit 143)"
    failed.reason = "its time of 1 s was up"
    assert end_text(failed).endswith("(exit 143): its time of 1 s was up")


def test_a_code_beyond_a_byte_is_never_taken_for_success() -> None:
    assert shell_code(256) != 0
    assert shell_code(-15) == 143
