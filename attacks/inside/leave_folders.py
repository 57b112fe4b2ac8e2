"""Leave folders that are deep, locked or strangely named."""

import os
import sys

for _ in range(int(sys.argv[1])):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
os.chmod(".", 0)
os.chdir("/job")
os.mkdir("locked")
os.mkdir("locked/in")
os.chmod("locked", 0)
for n in range(2000):
    open(f"f{n}\n\x1b", "w").close()
os.mkfifo("pipe")
print("made")
