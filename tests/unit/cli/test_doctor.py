"""What doctor says, from what a node tells and what it left behind."""

import os
import time
from pathlib import Path

from shoal.api import shoal_pb2 as pb
from shoal.cli.nodes.doctor import (
    PromiseCheck,
    clock_finding,
    last_end,
    network_findings,
    promise_findings,
)
from shoal.runtime.home import Home

HERE = "/ip4/127.0.0.1/tcp/4001/p2p/x"
PUBLIC = "/ip4/192.0.2.7/tcp/4001/p2p/x"
STREAM = "/ip4/192.0.2.7/tcp/4002/noise/p2p/x"


def found(
    *gates: pb.Gate, p2p: str = "up", addresses: tuple[str, ...] = (PUBLIC,)
) -> dict[str, PromiseCheck]:
    network = pb.NetworkInfo(p2p=p2p, gates=gates, links=len(gates))
    rows = network_findings(pb.NodeInfo(addresses=addresses, network=network))
    return {row.what: row for row in rows}


def gate(path: str, trouble: str = "") -> pb.Gate:
    name = pb.NodeName(petname="old-crow")
    return pb.Gate(name=name, path=path, rtt_us=400, trouble=trouble)


def test_a_gate_that_is_linked_directly_is_well() -> None:
    rows = found(gate("direct"))

    assert rows["gate"] == PromiseCheck("gate", "ok", "old-crow is linked, 0.4 ms")
    assert rows["links"].state == "ok"
    assert "/ip4/192.0.2.7/tcp/4001" in rows["links"].said


def test_a_gate_that_is_linked_by_libp2p_only_wants_its_port_opened() -> None:
    row = found(gate("relay", "timed out"))["gate"]

    assert row.state == "note"
    assert "timed out" in row.fix


def test_it_is_bad_if_no_gate_can_be_reached() -> None:
    row = found(gate("", "connection refused"))["gate"]

    assert row.state == "bad"
    assert "connection refused" in row.said


def test_one_gate_of_two_is_enough() -> None:
    network = pb.NetworkInfo(p2p="up", gates=[gate("direct"), gate("")])
    rows = network_findings(pb.NodeInfo(addresses=[PUBLIC], network=network))

    assert [row.state for row in rows if row.what == "gate"] == ["ok", "note"]


def test_a_member_on_loopback_is_told_how_to_listen_for_others() -> None:
    row = found(gate("direct"), addresses=(HERE,))["links"]

    assert row.state == "note"
    assert "--listen 0.0.0.0:4001" in row.fix


def test_a_lone_node_on_loopback_is_well() -> None:
    rows = found(p2p="not needed yet", addresses=(HERE,))

    assert {row.state for row in rows.values()} == {"ok"}


def test_it_is_said_if_others_need_libp2p_to_get_here() -> None:
    assert "only by libp2p" in found(addresses=(STREAM,))["links"].said


def test_a_host_of_libp2p_that_died_is_said() -> None:
    assert found(p2p="starting again: oops")["libp2p"].state == "note"


def test_a_clock_that_was_set_back_is_noticed_by_what_was_written_before(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.journal.touch()
    assert clock_finding(home).state == "ok"

    later_s = time.time() + 7_200
    os.utime(home.journal, (later_s, later_s))
    row = clock_finding(home)

    assert row.state == "bad"
    assert "written 2 h 0 min later" in row.said


def test_a_node_that_ended_by_an_error_is_remembered(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert last_end(home) == []

    home.log.write_text("  node  x\nthe node has stopped\n")
    assert last_end(home) == []

    home.log.write_text("error: cannot write the journal\nwhy:   disk full\nnext: x\n")
    [row] = last_end(home)
    assert row.state == "bad"
    assert "cannot write the journal: disk full" in row.said


def lending(strangers: str, *weaker: str, terms: str = "") -> dict[str, PromiseCheck]:
    node = pb.Node(worker=True, weaker=weaker, terms=terms)
    info = pb.NodeInfo(node=node, strangers=strangers, task_network="none")
    return {row.what: row for row in promise_findings(info)}


def test_a_promise_that_is_weaker_is_named_with_its_reason_and_a_fix() -> None:
    rows = lending("confined", "memory: looked at twice a second: no cgroups")

    assert rows["lending"].state == "ok"
    assert rows["lending"].said.endswith("they get no network")
    assert rows["memory"].state == "note"
    assert rows["memory"].said.endswith("looked at twice a second: no cgroups")
    assert "Delegate=yes" in rows["memory"].fix


def test_a_machine_that_is_lent_to_everybody_or_to_nobody_is_noted() -> None:
    assert lending("any")["lending"].state == "note"
    assert lending("confined", terms="it cannot")["lending"].state == "note"
    assert promise_findings(pb.NodeInfo()) == []
