"""Look for a key in the session of whoever runs the node."""

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(249, b"user", b"shoal-attack-key", None, 0))
