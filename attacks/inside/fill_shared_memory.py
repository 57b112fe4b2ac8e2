"""Write more into memory that is shared than the task may have."""

import time

for folder in ("/dev/shm", "/tmp"):
    with open(folder + "/fill", "wb") as file:
        for _ in range(55):
            file.write(bytes(1 << 20))
            file.flush()
time.sleep(3)
print("filled")
