"""Drop the privileges of a process before it executes a task's program.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

from shoal.drivers.sandbox import seccomp

CAPABILITIES_MAX: Final = 64
KEYRING: Final = b"shoal-tasks"
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_SYS_CAPSET: Final = 126 if os.uname().machine == "x86_64" else 91
_JOIN_SESSION_KEYRING: Final = 1
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_RESTRICT = 444, 446
_SCOPES: Final = struct.pack("<QQQ", 0, 0, 0b11)  # abstract sockets, and signals

_libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, *args: object) -> int:
    """Call a libc function; raise `OSError` if it fails."""
    found: int = getattr(_libc, what)(*args)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return found


def give_up() -> None:
    """Drop all capabilities and the means to regain them; filter system calls."""
    for capability in range(CAPABILITIES_MAX):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # No capability has a higher number.
    call("prctl", _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("syscall", _SYS_CAPSET, header, (ctypes.c_uint32 * 6)())
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    seccomp.install()


def leave_keyring() -> bool:
    """Join a new session keyring, to lose access to keys of the node's user.

    A user may have 200 keys; if no keyring can be added, all supervisors share a named
    one. Return whether that worked: a kernel may lack keyrings. The sandbox's filter
    denies all key calls anyway.
    """
    if seccomp.HERE is None:
        return False
    number = seccomp.HERE.keyctl
    names = (None, KEYRING)
    return any(_libc.syscall(number, _JOIN_SESSION_KEYRING, n) >= 0 for n in names)


def leave_abstract_sockets() -> bool:
    """Block abstract sockets and signals outside this process and its children.

    Abstract sockets belong to a network namespace, so a task that shares the machine's
    network could reach them. Return whether the kernel supports this (since 6.12).
    """
    size = len(_SCOPES)
    ruleset: int = _libc.syscall(_SYS_LANDLOCK_CREATE, _SCOPES, size, 0)
    if ruleset < 0:
        return False
    try:
        done: int = _libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return done >= 0
