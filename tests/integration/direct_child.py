"""A node in a process of its own, which tests stop and kill.

Run: python -m tests.integration.direct_child NUMBER

Prints its addresses and then listens until it is killed.
"""

import asyncio
import json
import sys

from tests.integration.direct_nodes import node, run


async def main() -> None:
    """Listen, and answer nothing but pings."""
    child = await node(int(sys.argv[1]))
    sys.stdout.write(json.dumps({"node": child.id, "at": child.links.addresses}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(main())
