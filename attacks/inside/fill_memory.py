"""Take memory by many processes, and tell how many are still alive."""

import os
import time

children = []
for _ in range(8):
    child = os.fork()
    children.append(child)
    if child == 0:
        fill = bytearray(40 << 20)
        fill[::4096] = b"x" * len(fill[::4096])
        time.sleep(20)
        os._exit(0)
time.sleep(3)
print("alive", sum(os.waitpid(c, os.WNOHANG)[0] == 0 for c in children))
