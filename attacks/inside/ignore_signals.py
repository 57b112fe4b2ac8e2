"""Ignore every signal that can be ignored."""

import signal
import time

for n in range(1, 65):
    try:
        signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print("deaf", flush=True)
while True:
    time.sleep(1)
