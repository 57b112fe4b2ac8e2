"""Write more files than the disk of the task holds."""

import os
import time

for n in range(60):
    with open(f"fill{n}", "wb") as file:
        file.write(os.urandom(1 << 20) * 5)
    time.sleep(0.05)
time.sleep(2)
print("filled")
