"""Write files that have no name any more, and keep them open."""

import os
import time

kept = []
for _ in range(60):
    file = open("fill", "wb")  # noqa: SIM115 - It stays open.
    os.unlink("fill")
    file.write(os.urandom(1 << 20) * 5)
    file.flush()
    kept.append(file)
    time.sleep(0.05)
time.sleep(2)
print("filled")
