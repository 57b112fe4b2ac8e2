"""The recipe `echo`: print where a task runs and which params it got.

Reads nothing but its environment, and needs nothing but the standard library.
"""

import json
import os
import sys


def main() -> None:
    """Print one line of JSON."""
    said = {
        "task": os.environ.get("SHOAL_TASK_ID", ""),
        "rank": int(os.environ.get("RANK", "0")),
        "of": int(os.environ.get("WORLD_SIZE", "1")),
        "params": json.loads(os.environ.get("SHOAL_PARAMS", "{}")),
    }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
