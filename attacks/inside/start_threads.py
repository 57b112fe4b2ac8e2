"""Start threads until that is refused."""

import threading

threading.stack_size(65536)
made, end = 0, threading.Event()
try:
    while made < 20000:
        threading.Thread(target=end.wait, daemon=True).start()
        made += 1
except (OSError, RuntimeError) as error:
    print("stopped at", made, error)
else:
    print("made", made)
