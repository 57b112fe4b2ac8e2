"""One's own nodes are used from any of them; those of others are not."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from reference.answers import ANSWERS, breaches
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import connect
from shoal.model.ids import NodeId, OwnerId
from shoal.net.direct.links import DirectLinks
from shoal.net.identity.identity import Identity
from shoal.protocol.forwarding import ApiCall, ApiPiece
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress
from shoal.runtime.home import Home
from shoal.runtime.membership import shoal_membership
from shoal.runtime.membership.grant_signing import ROLES
from shoal.runtime.membership.shoal_membership import issue

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
UP = ("--port", "0", "--no-sandbox", "--no-web", "-q")
LONG = "echo begun; until test -e {}; do sleep 0.05; done; echo over; exit 3"


class Three(NamedTuple):
    """A laptop and a desktop of one person, and the machine of a friend."""

    laptop: CliHome
    desktop: CliHome
    friend: CliHome

    @property
    def there(self) -> tuple[str, str]:
        """What has a command ask the desktop."""
        return "--node", self.desktop.info["petname"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with homes(tmp_path_factory.mktemp("own")) as make:
        desktop, laptop, friend = make("desktop"), make("laptop"), make("friend")
        desktop.up(*UP)
        for home, flags in ((laptop, ("--mine",)), (friend, ())):
            text = desktop.json("invite", *flags)["invitation"]
            home.ok("join", text, "--no-up")
            home.up(*UP)
        for home in (desktop, laptop, friend):
            meet(home)
        yield Three(laptop, desktop, friend)


def meet(home: CliHome) -> None:
    until(lambda: len(home.json("nodes")["nodes"]) == 3)


def until(condition: Callable[[], bool]) -> None:
    eventually(condition, PATIENCE_S)


def open_calls(home: CliHome) -> int:
    """Return how many calls of other nodes a node answers now."""
    with connect(home=Home(home.path)) as client:
        lines = client.metrics().splitlines()
    [figure] = [line for line in lines if line.startswith("shoal_api_calls_open ")]
    return int(float(figure.split()[1]))


def test_a_job_is_followed_and_ended_from_another_node(
    three: Three, tmp_path: Path
) -> None:
    laptop, desktop, there = three.laptop, three.desktop, three.there
    go = tmp_path / "go"
    job = desktop.ok("submit", "-q", "--", "sh", "-c", LONG.format(go)).strip()

    logs = laptop.start("logs", "-f", job, *there)
    assert logs.stdout is not None
    begun = logs.stdout.readline()
    found = laptop.ok("show", job)
    unknown = three.friend("show", job)
    listed = laptop.ok("ps", *there)
    explained = laptop.ok("explain", job, *there)
    go.touch()
    waited = laptop("wait", job, *there)
    rest, _ = logs.communicate(timeout=PATIENCE_S)
    again = laptop("retry", job, *there)
    cancelled = laptop("cancel", "last", *there)

    assert (begun, rest, logs.returncode) == ("begun\n", "over\n", 0)
    assert "state      running" in found, "a node asks the others of its owner"
    assert unknown.code == 102, "and nobody else's"
    assert "`shoal ps --everywhere` looks on your other nodes" in unknown.err
    assert job in listed
    assert f"{job}.main.0 is running" in explained
    assert waited.code == 3
    assert f"--node {there[1]}" in again.err, "what comes next is on that node, too"
    assert cancelled.code == 0
    assert job in laptop.ok("events", *there)
    assert open_calls(desktop) == 0


def test_ctrl_c_ends_the_call_on_the_other_node(three: Three) -> None:
    laptop, desktop, there = three.laptop, three.desktop, three.there
    follows = laptop.start("events", "-f", *there)
    until(lambda: open_calls(desktop) == 1)

    follows.send_signal(signal.SIGINT)

    follows.communicate(timeout=PATIENCE_S)
    assert follows.returncode == 130
    until(lambda: open_calls(desktop) == 0)


def test_who_dies_before_it_has_read_all_ends_the_call_as_well(three: Three) -> None:
    laptop, desktop, there = three.laptop, three.desktop, three.there
    job = desktop.ok("submit", "-q", "--", "seq", "1000000").strip()
    laptop.ok("wait", job, *there)
    reads = laptop.start("logs", job, *there)  # Its pipe is full, and nobody reads.
    until(lambda: open_calls(desktop) == 1)

    reads.kill()

    reads.communicate(timeout=PATIENCE_S)
    until(lambda: open_calls(desktop) == 0)


def test_outputs_are_taken_from_another_node(three: Three, tmp_path: Path) -> None:
    command = ("sh", "-c", "mkdir out; seq 200000 > out/numbers")
    job = three.desktop.ok("submit", "-q", "--output", "out/", "--", *command).strip()
    three.laptop.ok("wait", job, *three.there)

    three.laptop.ok("pull", job, *three.there, "--to", str(tmp_path / "taken"))

    taken = (tmp_path / "taken" / "numbers").read_text()
    assert taken == "".join(f"{n}\n" for n in range(1, 200_001))


def test_jobs_everywhere_are_those_of_the_same_owner(three: Three) -> None:
    ids = [home.ok("submit", "-q", "--", "true").strip() for home in three]

    document = three.laptop.json("ps", "--everywhere")
    table = three.laptop.ok("ps", "--everywhere")

    document.pop("version")
    assert breaches(ANSWERS["ps"], document) == []
    at = {job["id"]: job["at"]["petname"] for job in document["jobs"]}
    assert at[ids[0]] == three.laptop.info["petname"]
    assert at[ids[1]] == three.desktop.info["petname"]
    assert ids[2] not in at
    assert (document["silent"], document["unreached"]) == ([], 0)
    assert table.split()[:3] == ["NODE", "#", "JOB"]


def test_what_a_machine_uses_is_told_to_nodes_of_its_owner_only(three: Three) -> None:
    desktop, friend = three.desktop.info["node"], three.friend.info["node"]

    def tells() -> bool:
        nodes = {each["id"]: each for each in three.laptop.json("nodes")["nodes"]}
        return all(nodes[each]["used"] for each in (desktop, three.laptop.info["node"]))

    until(tells)
    nodes = {each["id"]: each for each in three.laptop.json("nodes")["nodes"]}
    assert nodes[friend]["used"] is None
    assert nodes[desktop]["used"]["memory_bytes"] > 0
    assert nodes[desktop]["used"]["cpu_milli"] <= nodes[desktop]["machine"]["cpu_milli"]
    assert "%" in three.laptop.ok("nodes")


CALLS_HOME = """
import shoal
client = shoal.Client(start=False)
spec = {"command": ["echo", "from a child"], "resources": {"cpu": 0.1}}
job = client.submit(spec)
print(job.result(60), b"".join(job.logs()).decode(), job.id)
"""


def test_a_task_calls_the_node_that_submitted_it_from_own_machines_alone(
    three: Three, tmp_path: Path
) -> None:
    said: dict[str, str] = {}
    for where in (three.desktop, three.friend):
        spec = tmp_path / "job.json"
        document = {
            "command": ["python", "-c", CALLS_HOME],
            "place": {"node": where.info["petname"]},
            "resources": {"cpu": 0.1},
        }
        spec.write_text(json.dumps(document))
        job = three.laptop.ok("submit", "-q", str(spec)).strip()
        three.laptop("wait", job)
        logs = three.laptop("logs", job)
        said[where.info["petname"]] = logs.out + logs.err

    own, foreign = said.values()
    assert own.startswith("0 from a child")
    child = three.laptop.json("show", own.split()[-1])["job"]
    assert child["parent"].endswith(".main.0")
    assert "on a machine of another owner" in foreign
    assert "next: the program that submitted the job has a client" in foreign
    assert "`--on NODE`" in foreign


def test_others_are_refused_and_so_is_all_but_jobs(three: Three) -> None:
    of_friend = three.friend("ps", *three.there)
    at_friend = three.laptop("logs", "--node", three.friend.info["petname"])
    submitted = three.laptop("submit", *three.there, "--", "true")
    nobody = three.laptop("ps", "--node", "no-such-node")

    for refused in (of_friend, at_friend):
        assert refused.code == 106
        assert "not of the same owner" in refused.err
    assert submitted.code == 2
    assert "run the command on that node" in submitted.err
    assert nobody.code == 102


class Stranger:
    """A member with links alone: it asks what no honest node would ask for."""

    def __init__(self, of: CliHome, owner: str) -> None:
        home = Home(of.path)
        belongs = shoal_membership.load(home)
        assert belongs is not None
        self.identity = Identity.generate()
        self.grant = issue(
            Identity.load(home.root_key),
            Grant(
                node=self.identity.node,
                shoal=belongs.shoal,
                roles=ROLES["admin"],
                owner=OwnerId(owner),
                expires_wall_s=4e9,
            ),
        )
        self.said: asyncio.Queue[ApiPiece] = asyncio.Queue()
        self.was_lost = asyncio.Event()
        self.links = DirectLinks(
            self.identity, self.grant, admit=lambda *_: None, listener=self
        )

    async def ask(self, of: CliHome, methods: Sequence[str]) -> list[pb.Error]:
        """Make calls, and return the errors that are the answers."""
        peer = NodeId(of.info["node"])
        self.links.know(peer, of.info["addresses"])
        errors: list[pb.Error] = []
        try:
            for number, method in enumerate(methods):
                self.links.send(peer, ApiCall(number=number, method=method))
                async with asyncio.timeout(PATIENCE_S):
                    while (piece := await self.said.get()).kind == "alive":
                        pass
                assert piece.kind == "error", piece
                errors.append(pb.Error.FromString(piece.data))
        finally:
            await self.links.close()
        return errors

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, ApiPiece):
                self.said.put_nowait(message)

    def connected(self, peer: NodeId, grant: Grant | None) -> None: ...

    def lost(self, peer: NodeId) -> None:
        self.was_lost.set()

    def heard(self, origin: NodeId, message: AnyMessage) -> None: ...

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None: ...

    def measured(self, peer: NodeId, rtt_s: float) -> None: ...

    def estimated(self, nodes: int) -> None: ...


def test_who_asks_without_asking_its_own_node_is_refused_as_well(three: Three) -> None:
    desktop = three.desktop
    owner = owner_of(desktop)

    async def ask(owner: str, *methods: str) -> list[pb.Error]:
        return await Stranger(desktop, owner).ask(desktop, methods)

    of_mallory = asyncio.run(ask("mallory", "List", "Logs", "Shutdown"))
    of_owner = asyncio.run(ask(owner, "Shutdown", "Submit", "ListSecrets", "Nonsense"))

    assert {error.kind for error in of_mallory + of_owner} == {"not-allowed"}
    assert all("not of the same owner" in error.what for error in of_mallory)
    assert all("does not call" in error.what for error in of_owner)
    assert "it lives" in desktop.ok("run", "--", "echo", "it lives")


def owner_of(home: CliHome) -> str:
    """Return whose node it is."""
    belongs = shoal_membership.load(Home(home.path))
    assert belongs is not None
    return belongs.grant.owner


def test_a_revocation_ends_a_call_at_once(three: Three) -> None:
    desktop = three.desktop

    async def follow() -> tuple[int, int]:
        member = Stranger(desktop, owner_of(desktop))
        peer = NodeId(desktop.info["node"])
        member.links.know(peer, desktop.info["addresses"])
        request = pb.EventsRequest(follow=True).SerializeToString()
        call = ApiCall(number=1, method="Events", request=request)
        member.links.send(peer, call)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.to_thread(until, lambda: open_calls(desktop) == 1)
            node = member.identity.node
            await asyncio.to_thread(desktop.ok, "revoke", node)
            await member.was_lost.wait()
            left = await asyncio.to_thread(open_calls, desktop)
            member.links.send(peer, ApiCall(number=2, method="Events"))
            await asyncio.sleep(0.2)
            after = await asyncio.to_thread(open_calls, desktop)
        await member.links.close()
        return left, after

    assert asyncio.run(follow()) == (0, 0)


def test_a_node_that_died_ends_the_call_and_is_named(
    three: Three,
) -> None:
    laptop, desktop, there = three.laptop, three.desktop, three.there
    follows = laptop.start("events", "-f", *there)
    until(lambda: open_calls(desktop) == 1)

    desktop.kill()
    said = follows.communicate(timeout=PATIENCE_S)[1]
    listed = laptop("ps", "--everywhere")

    assert follows.returncode == 105
    assert "did not answer to the end" in said
    assert listed.code == 0
    assert f"{there[1]} did not list its jobs" in listed.err


def test_a_node_that_stopped_is_away_until_it_is_forgotten(three: Three) -> None:
    name = three.friend.info["petname"]

    def listed() -> list[str]:
        found = three.laptop.json("nodes")["nodes"]
        return [each["away"] for each in found if each["petname"] == name]

    refused = three.laptop("nodes", "--forget", name)
    three.friend.ok("down", "-q")
    until(lambda: listed() == ["it was stopped"])
    planned = three.laptop("plan", "--on", name, "--", "true")
    waits = three.laptop.ok("submit", "-q", "--on", name, "--", "true").strip()
    explained = three.laptop.ok("explain", waits)
    three.laptop.ok("cancel", "-q", waits)
    forgotten = three.laptop.json("nodes", "--forget", name)["forgotten"]

    why = f"{name} is away: it was stopped; the job runs only there"
    assert planned.code == 104
    assert f"never: {why}\n" in planned.out
    assert why in explained
    assert "is known here" not in explained
    assert (refused.code, listed()) == (102, [])
    assert forgotten["petname"] == name
