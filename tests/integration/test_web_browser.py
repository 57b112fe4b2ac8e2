"""The page in a real browser: submit, watch, cancel, with nothing to complain of."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.unit.web.test_scripts import node_here

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
DRIVER = Path(__file__).parent / "browser.mjs"
NODE = node_here()
TIMEOUT_S = 120

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium here to look at the page"),
    pytest.mark.skipif(not NODE, reason="no node here to drive a browser"),
]

Step = dict[str, str]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHome]:
    with homes(tmp_path) as make:
        home = make("home")
        home.up("--port", "0", "--without", "p2p")
        yield home


def browse(*steps: Step) -> tuple[list[Any], list[str]]:
    """Take steps in a browser; return what each came to, and what was wrong."""
    done = subprocess.run(
        [NODE, str(DRIVER), CHROMIUM],
        input="\n".join(map(json.dumps, steps)) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *values, complaints = map(json.loads, done.stdout.splitlines())
    return values, complaints


def text(words: str) -> Step:
    """Wait until the page says this."""
    return {"until": f"document.body.innerText.includes({json.dumps(words)})"}


def click(selector: str) -> Step:
    """Wait for something, and press it."""
    found = f"document.querySelector({json.dumps(selector)})"
    return {"until": f"{found} && ({found}.click(), true)"}


def type_(selector: str, words: str) -> Step:
    """Write into a field."""
    found = f"document.querySelector({json.dumps(selector)})"
    event = "new Event('input', {bubbles: true})"
    write = f"{found}.value = {json.dumps(words)}, {found}.dispatchEvent({event})"
    return {"until": f"{found} && ({write}, true)"}


def test_a_job_is_submitted_watched_and_cancelled_by_hand(home: CliHome) -> None:
    command = """sh -c 'echo "<b>loud</b>"; sleep 600'"""

    values, complaints = browse(
        {"go": home.json("web")["url"]},
        text("No job yet"),
        {"do": "location.hash + document.querySelectorAll('.topology .node').length"},
        click("a[data-page=submit]"),
        type_("#command", command),
        type_("#name", "<i>by hand</i>"),
        {"do": "document.querySelector('.primary + .cli code').textContent"},
        click(".actions .act:not(.primary)"),
        text("It would start now."),
        click(".act.primary"),
        text("<b>loud</b>"),
        {"do": "document.querySelectorAll('h1 i, .output b').length"},
        {"until": "document.querySelectorAll('.gantt .run.running').length"},
        click(".act.danger"),
        type_("#reason", "seen enough"),
        {"do": "document.querySelector('dialog .cli code').textContent"},
        click("dialog .act.danger"),
        text("seen enough"),
        text("Retry"),
        {"do": "location.pathname"},
        click(".crumbs a"),
        {"until": "document.querySelector('.jobs tbody .pill.cancelled') && true"},
        click(".jobs tbody td:nth-child(2)"),  # The row opens, not only its link.
        text("seen enough"),
        click("a[data-page=nodes]"),
        click(".nodes tbody td:nth-child(2)"),
        text("What the machine uses"),
        {"until": "document.querySelector('.chart polyline, .chart circle') && true"},
    )

    submit = "shoal submit --name '<i>by hand</i>' -- " + command
    job = home.json("ps")["jobs"][0]
    assert complaints == []
    assert values[2] == "1"  # No token is left in the address; one node is drawn.
    assert values[6] == submit
    assert values[11:13] == [0, 1]  # Nothing became markup; one run is drawn.
    assert values[15] == f"shoal cancel {job['id']} --reason 'seen enough'"
    assert values[19] == f"/jobs/{job['id']}"
    assert (job["state"], job["name"]) == ("cancelled", "<i>by hand</i>")


def test_without_a_token_the_page_asks_for_it_and_then_goes_on(home: CliHome) -> None:
    told = home.json("web")
    token = told["url"].partition("#token=")[2]

    values, complaints = browse(
        {"go": f"http://{told['address']}/"},
        text("Open this page with its token"),
        type_("#token", "wrong"),
        click(".gate .primary"),
        text("This token is not"),
        type_("#token", token),
        click(".gate .primary"),
        text("No job yet"),
        {"do": "document.getElementById('live-text').textContent"},
    )

    assert values[-1] == "live"
    assert [each for each in complaints if "401" not in each] == []


def test_the_log_on_the_page_says_that_lines_may_be_missing(home: CliHome) -> None:
    home.ok("run", "-q", "--name", "doubted", "--", "echo", "all that came")
    [log] = (home.path / "outputs").rglob("*.stdout")
    why = "its worker <b>was lost</b>"
    log.with_suffix(".doubt").write_text(why)  # As the node writes it.

    values, complaints = browse(
        {"go": home.json("web", "doubted")["url"]},
        text("all that came"),
        text(f"attempt 1: lines may be missing: {why}"),
    )

    assert complaints == []
    assert values[-1] is True
