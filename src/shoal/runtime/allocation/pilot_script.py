"""The script that a pilot runs: join, be a worker for a while, leave nothing."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

from shoal.core.allocation.allocator import LABEL

if TYPE_CHECKING:
    from shoal.core.allocation.records import AllocationTerms

SPARE_S: Final = 5
"""How long before its end in the engine a pilot is gone by itself."""

SCRIPT: Final = """\
#!/bin/sh
# A worker of a shoal: pilot {number} of the allocation '{name}'.
began=$(date +%s)
umask 077
SHOAL_HOME=$(mktemp -d "${{TMPDIR:-/tmp}}/shoal-pilot.XXXXXX") || exit 1
export SHOAL_HOME
trap 'rm -rf "$SHOAL_HOME"' EXIT
# The node gets the signal as well, and ends in order; this shell waits for that.
trap : TERM INT
{shoal} join -q --no-up --wait 2m --file - <<'END' || exit 1
{invitation}
END
left=$(({limit} - {spare} - $(date +%s) + began))
{shoal} up --port 0 --listen 0.0.0.0:0 --strangers no --label {label} \\
    --web off --time-limit "${{left}}s" --idle-timeout {idle}s &
node=$!
while kill -0 "$node" 2>/dev/null; do wait "$node"; done
"""


def pilot_script(terms: AllocationTerms, number: int, invitation: str) -> str:
    """Return a script that holds the invitation: nobody else may read it."""
    own = f"{shlex.quote(sys.executable)} -m shoal.cli"
    return SCRIPT.format(
        name=terms.name,
        number=number,
        shoal=terms.shoal or own,
        invitation=invitation,
        limit=int(terms.time_limit_s),
        spare=SPARE_S,
        label=f"{LABEL}={terms.name}/{number}",
        idle=max(1, int(terms.idle_s)),
    )
