"""Measure a step of a gang that is placed by the measured network, or at random.

Eight nodes are in network namespaces: two sites of four, with a line of 20 ms and 50
Mbit/s between them. No node has a label. Gangs of four are submitted at either site;
once shoal chooses, once the nodes are drawn at random. In a step all ranks send 2 MB
to rank 0, over sockets of their own, and get as much back.

Needs root and `ip`, as `tests/integration/namespaces.py` does.

Run: python -m benchmarks.sites >> benchmarks/results.jsonl
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.integration.found_shoal import linked, shoal, without
from tests.integration.live_shoal import eventually
from tests.integration.namespaces import internet

from shoal.api import shoal_pb2 as pb

if TYPE_CHECKING:
    from tests.integration.live_shoal import LiveNode

GPU: Final = ("--gpus", "0", "--models", "T4", "--memories", "16000")
ROUNDS: Final = 3  # gangs submitted at each site, with each placement
LONG_S: Final = 120.0

STEPS: Final = """
import json, os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
BYTES, COUNT = 2_000_000, 4

def take(line):
    left = BYTES
    while left:
        left -= len(line.recv(min(left, 1 << 20)))

if rank:
    while True:
        try:
            line = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
    for _ in range(COUNT):
        line.sendall(bytes(BYTES))
        take(line)
else:
    door = socket.create_server(("", where[1]))
    lines = [door.accept()[0] for _ in range(size - 1)]
    took = []
    for _ in range(COUNT):
        began = time.monotonic()
        for line in lines:
            take(line)
        for line in lines:
            line.sendall(bytes(BYTES))
        took.append(time.monotonic() - began)
    with open(sys.argv[1], "w") as file:
        json.dump(took, file)
"""


def step_s(
    node: LiveNode, job: str, where: list[str], folder: Path
) -> tuple[float, int]:
    """Run one gang; return what its steps took, and in how many sites it was."""
    told = folder / f"{job}.json"
    spec = {
        "command": ["python3", "-c", STEPS, str(told)],
        "nodes": 4,
        "network": True,
        "resources": {"gpu": 1},
        "placement": {"node": where} if where else {},
    }
    with node.client() as client:
        client.submit(pb.SubmitRequest(job_id=job, json=json.dumps(spec)))

        def is_done() -> bool:
            return client.get(job, tasks_max=4).state == pb.STATE_DONE

        eventually(is_done, LONG_S, node.story)
        places = [p.id for t in client.get(job, tasks_max=4).tasks for p in t.nodes]
    sites = {view.site for id_, view in node.views().items() if id_ in places}
    return statistics.median(json.loads(told.read_text())), len(sites)


def main() -> None:
    """Print one line for each placement."""
    with (
        tempfile.TemporaryDirectory() as folder,
        internet() as net,
        shoal(Path(folder)) as reef,
    ):
        net.lay_line(delay_ms=20, mbit=50)
        nodes: list[LiveNode] = []
        args = (*GPU, "--no-lan", *without("p2p"))
        for index in range(8):
            name = f"m{index}"
            where, there = net.machine(name, 11 + index, far=index >= 4)
            make = reef.join if nodes else reef.found
            nodes.append(make(name, where, *args, prefix=there))
        began = time.monotonic()

        def is_measured() -> bool:
            seen = [[v.site for v in n.views().values()] for n in (nodes[0], nodes[7])]
            return all(len(s) == 8 and all(s) and len(set(s)) == 2 for s in seen)

        eventually(lambda: all(len(linked(n)) == 7 for n in nodes), LONG_S)
        eventually(is_measured, LONG_S)
        measured_s = time.monotonic() - began
        rng = Random(7)
        for policy in ("compact", "random"):
            # Not the policy of that name: rooms are reserved by site for each of them.
            drawn = [rng.sample([n.id for n in nodes], 4) for _ in range(2 * ROUNDS)]
            found = [
                step_s(
                    nodes[7 * (number % 2)],
                    f"{policy}{number}",
                    drawn[number] if policy == "random" else [],
                    Path(folder),
                )
                for number in range(2 * ROUNDS)
            ]
            line = {
                "case": "step of a gang of 4, two sites of 4",
                "placement": policy,
                "step_s": [round(took_s, 3) for took_s, _ in found],
                "median_s": round(statistics.median(t for t, _ in found), 3),
                "in_one_site": sum(sites == 1 for _, sites in found),
                "measured_after_s": round(measured_s, 1),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
