# pyright: basic
# torch describes its types only in part.
"""The recipe `ddp`: synchronous data-parallel training, by torch's own elastic agent.

Each task of the gang is an agent that starts the program as one rank. When a rank is
lost the agents meet again and start it anew, with fewer ranks or with a newcomer, and
it goes on from the latest checkpoint (`data_parallel`). A rank whose program raises
ends its agent, and is not started anew. If the agents cannot meet any more, because the
first of them is gone, all end with a code by which shoal starts the gang again.
"""

from __future__ import annotations

import os
import secrets
import sys
import traceback
from typing import TYPE_CHECKING, Final

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from shoal.errors import ShoalError
from shoal.interfaces import transport_variables
from shoal.train.gangs import lost_peers, rendezvous
from shoal.train.programs import explain_and_exit, run_program
from shoal.train.settings import params_of, settings_of
from shoal.train.task_context import TaskContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.train.settings import TrainSettings

RESTARTS_MAX: Final = 20
AGENT_BITS: Final = 40
MEET_S: Final = 10
"""How long ranks that have met wait for more, up to the most."""


def main() -> None:
    """Run this node's torch agent, or a rank that it started."""
    params = params_of(os.environ)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _run_rank(str(params.get("program", "gpt")))
        return
    settings = settings_of(params)
    around = TaskContext.of(os.environ)
    lost_peers.heed_raised_ranks()
    with rendezvous.meet(around.exchange(), os.environ) as meeting:
        _tell_apart(around.index)
        _launch(settings, meeting)


def _run_rank(program: str) -> None:
    """Run the program; if it raises by its own fault, tell the agent."""
    try:
        run_program(program)
    except Exception as error:
        if lost_peers.is_lost_peer(error):
            raise
        try:
            if isinstance(error, ShoalError):
                explain_and_exit(error)
            traceback.print_exc()
            sys.exit(lost_peers.OWN_FAULT)
        finally:
            lost_peers.tell_agent()  # It ends this process: what failed is told first.


def _launch(settings: TrainSettings, meeting: rendezvous.Meeting) -> None:
    """Run the agent until the last rank ends, or no peer can be met any more."""
    os.environ.update(transport_variables(meeting.own))
    # Else torch tells a newcomer nothing of the store that the others share already:
    # it waits for that, and they wait for it.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    config = LaunchConfig(
        min_nodes=settings.quorum,
        max_nodes=settings.workers,
        nproc_per_node=ranks_here(os.environ),
        run_id=os.environ.get("SHOAL_JOB_ID", "shoal"),
        rdzv_backend="c10d",
        rdzv_endpoint=f"{_bracketed(meeting.host)}:{meeting.port}",
        rdzv_configs={"is_host": meeting.is_host, "last_call_timeout": MEET_S},
        local_addr=meeting.own,
        max_restarts=RESTARTS_MAX,
        monitor_interval=0.2,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "shoal.train.gangs.ddp")
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        lost_peers.end_to_try_again(f"ranks have ended with {sorted(codes)}")
    except (RendezvousError, ConnectionError, RuntimeError) as error:
        lost_peers.end_to_try_again(f"the gang cannot meet: {error!r}")


def ranks_here(environment: Mapping[str, str]) -> int:
    """Return how many ranks this task runs: one for each of its GPUs."""
    return max(1, int(environment.get("GPUS_PER_NODE", "0")))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _tell_apart(index: int) -> None:
    """Give each agent a unique name, also on one machine and after a restart.

    torch identifies an agent by address and process id, and in sandboxes all agents of
    one machine have the same of both. Each would take itself for the whole gang, and a
    restarted agent for the dead one, which the others would wait for.
    """
    generator = DynamicRendezvousHandler._node_desc_generator  # noqa: SLF001
    generator._local_id = (index << AGENT_BITS) + secrets.randbits(AGENT_BITS)  # noqa: SLF001


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
