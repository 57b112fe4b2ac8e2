"""Runs one task in a sandbox, in whatever network this process is in.

Arguments: a folder, what the task may reach, and the program of the task.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
from tests.unit.drivers.orders import Watched, opened, order

from shoal.drivers.process import ProcessSettings
from shoal.model.kinds import TaskNetwork


async def main(folder: Path, reach: TaskNetwork, program: str) -> None:
    """Run it, and print what it printed."""
    one = order("/usr/bin/python3", "-c", program, network=reach != "none")
    one = msgspec.structs.replace(one, network=reach, foreign=True)
    watched = Watched()
    async with opened(folder, ProcessSettings()) as driver:
        outcome = await driver.run(one, watched)
    sys.stdout.write(watched.text())
    sys.stderr.write(f"{outcome.reason} {watched.text('stderr')}")


if __name__ == "__main__":
    reach = msgspec.convert(sys.argv[2], TaskNetwork)
    asyncio.run(main(Path(sys.argv[1]), reach, sys.argv[3]))
