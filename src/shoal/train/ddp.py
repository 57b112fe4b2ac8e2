# pyright: basic
# torch describes its types only in part.
"""The recipe `ddp`: synchronous data-parallel training, by torch's own elastic agent.

Each task of the gang is an agent that starts the program as one rank. When a rank is
lost the agents meet again and start it anew, with fewer ranks or with a newcomer, and
it goes on from the latest checkpoint (`data_parallel`). If the agents cannot meet any
more, because the first of them is gone, all end with a code by which shoal starts the
gang again.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
)
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from shoal.errors import ShoalError
from shoal.train import rendezvous
from shoal.train.programs import USAGE, explain_and_exit, run_program
from shoal.train.settings import params_of, settings_of
from shoal.train.surroundings import Surroundings

TRY_AGAIN: Final = 33
"""The exit code after which shoal starts the gang again."""

RESTARTS_MAX: Final = 20
AGENT_IDS: Final = 1_000_000
MEET_S: Final = 10
"""How long those who met wait for more, up to the most."""


def main() -> None:
    """Be the agent of this node, or a rank that it started."""
    params = params_of(os.environ)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        run_program(str(params.get("program", "gpt")))
        return
    settings = settings_of(params)
    around = Surroundings.of(os.environ)
    exchange = around.exchange()
    first = f"{around.name.rpartition('.')[0]}.0"
    host = None
    own = rendezvous.own_address(os.environ)
    os.environ.update(rendezvous.transport_variables(own))
    if around.name == first:
        address = own
        port = rendezvous.free_port(address)
        host = rendezvous.Host(exchange, address, port)
    else:
        address, port = rendezvous.find(exchange, first)
    config = LaunchConfig(
        min_nodes=settings.quorum,
        max_nodes=settings.workers,
        nproc_per_node=1,
        run_id=os.environ.get("SHOAL_JOB_ID", "shoal"),
        rdzv_backend="c10d",
        rdzv_endpoint=f"{address}:{port}",
        rdzv_configs={"is_host": host is not None, "last_call_timeout": MEET_S},
        local_addr=own,
        max_restarts=RESTARTS_MAX,
        monitor_interval=0.2,
    )
    _tell_apart(around.index)
    try:
        elastic_launch(config, sys.executable)("-m", "shoal.train.ddp")
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        sys.exit(USAGE if codes == {USAGE} else TRY_AGAIN)
    except (RendezvousError, ConnectionError, RuntimeError) as error:
        print(f"the gang cannot meet: {error!r}", file=sys.stderr)
        sys.exit(TRY_AGAIN)
    finally:
        if host is not None:
            host.close()


def _tell_apart(index: int) -> None:
    """Let agents on one machine know each other by their place in the gang too.

    torch knows an agent by address and process id, and in sandboxes two agents of one
    machine have the same of both: each would take itself for all of the gang.
    """
    generator = DynamicRendezvousHandler._node_desc_generator  # noqa: SLF001
    generator._local_id = index * AGENT_IDS  # noqa: SLF001


if __name__ == "__main__":
    try:
        main()
    except ShoalError as error:
        explain_and_exit(error)
