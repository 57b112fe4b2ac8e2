"""What an interpreter loads when it does so little."""

import subprocess
import sys


def modules_after(script: str) -> list[str]:
    """Return the modules that a new interpreter has loaded after these lines."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(done.stdout.split())
