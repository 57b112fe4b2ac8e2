"""Compile and install the system-call filter (seccomp BPF) of every sandbox.

It denies what Docker's default profile denies to a container without capabilities, and
a little more (decision 22). Denied calls fail with EPERM. Calls that programs can do
without fail with ENOSYS: `clone3`, whose flags a filter cannot see, all numbers newer
than this file, and calls of other architectures (i386, x32, 32-bit ARM). Allowed socket
families are IPv4, IPv6, unix and, to list interfaces, NETLINK_ROUTE.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final, NamedTuple, final

DENIED: Final[dict[str, tuple[int, int | None]]] = {
    # Kernel keyrings, which ignore namespaces.
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "request_key": (249, 218),
    # Mounts, roots and namespaces.
    "chroot": (161, 51),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "listmount": (458, 458),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "statmount": (457, 457),
    "umount2": (166, 39),
    "unshare": (272, 97),
    # Other processes.
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    # Parts of the kernel with many past vulnerabilities.
    "bpf": (321, 280),
    "fanotify_init": (300, 262),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "modify_ldt": (154, None),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # The machine.
    "acct": (163, 89),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "lsm_get_self_attr": (459, 459),
    "lsm_list_modules": (461, 461),
    "lsm_set_self_attr": (460, 460),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    # Obsolete calls.
    "_sysctl": (156, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "sysfs": (139, None),
    "uselib": (134, None),
    "ustat": (136, None),
}
"""Denied calls, with their numbers on x86_64 and aarch64."""

FIRST_UNKNOWN: Final = 470
"""Calls from this number on are newer than this list; x32 calls are far above."""

NEW_NAMESPACES: Final = 0x7E020000
"""All flags of `clone` that create a namespace."""

PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
TERMINAL_INPUT: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which inject input into a terminal."""

FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
AF_NETLINK: Final = 16
NETLINK_ROUTE: Final = 0

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGS_AT, _ARG_BYTES = 0, 4, 16, 8
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_JUMP_MAX: Final = 255
_LEAF_MAX: Final = 3
_INSTRUCTION: Final = struct.Struct("=HBBI")
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_SPEC_ALLOW: Final = 4


class CpuArchitecture(NamedTuple):
    """A CPU architecture: its audit number, and numbers of some calls."""

    arch: int
    column: int  # in `DENIED`
    clone: int
    clone3: int
    ioctl: int
    personality: int
    socket: int
    socketpair: int
    seccomp: int
    keyctl: int


MACHINES: Final = {
    "x86_64": CpuArchitecture(0xC000003E, 0, 56, 435, 16, 135, 41, 53, 317, 250),
    "aarch64": CpuArchitecture(0xC00000B7, 1, 220, 435, 29, 92, 198, 199, 277, 219),
}


@final
class _Assembly:
    """A BPF program under construction, with forward jumps to labels."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, str, str]] = []
        self._places: dict[str, int] = {}

    def add(self, code: int, value: int, yes: str = "", no: str = "") -> None:
        """Add an instruction; without a label, execution continues with the next."""
        self._code.append((code, value, yes, no))

    def place(self, name: str) -> None:
        """Put a label on the next instruction."""
        self._places[name] = len(self._code)

    def program(self) -> bytes:
        """Return the program as bytes, with all jumps resolved."""
        return b"".join(
            _INSTRUCTION.pack(code, self._jump(at, yes), self._jump(at, no), value)
            for at, (code, value, yes, no) in enumerate(self._code)
        )

    def _jump(self, at: int, name: str) -> int:
        if not name:
            return 0
        length = self._places[name] - at - 1
        assert 0 <= length <= _JUMP_MAX, f"{name} is too far away"
        return length


def compiled(machine: CpuArchitecture) -> bytes:
    """Return the filter for an architecture, in the format of kernel and bubblewrap."""
    places = {
        number: "denied"
        for numbers in DENIED.values()
        if (number := numbers[machine.column]) is not None
    }
    places[machine.clone] = "clone"
    places[machine.clone3] = "unknown"
    places[machine.ioctl] = "ioctl"
    places[machine.personality] = "personality"
    places[machine.socket] = places[machine.socketpair] = "socket"
    code = _Assembly()
    code.add(_LOAD, _ARCH_AT)
    code.add(_EQUAL, machine.arch, no="unknown")
    code.add(_LOAD, _NUMBER_AT)
    code.add(_AT_LEAST, FIRST_UNKNOWN, yes="unknown")
    _add_search(code, sorted(places.items()))
    _add_arguments(code)
    for place, value in (
        ("allowed", _ALLOW),
        ("denied", _ERRNO | errno.EPERM),
        ("no family", _ERRNO | errno.EAFNOSUPPORT),
        ("unknown", _ERRNO | errno.ENOSYS),
    ):
        code.place(place)
        code.add(_RETURN, value)
    return code.program()


def _add_search(code: _Assembly, places: list[tuple[int, str]]) -> None:
    """Add a binary search: the kernel evaluates every number when it loads a filter."""
    if len(places) <= _LEAF_MAX:
        for number, place in places:
            code.add(_EQUAL, number, yes=place)
        code.add(_RETURN, _ALLOW)
        return
    half = len(places) // 2
    upper = f"from {places[half][0]}"
    code.add(_AT_LEAST, places[half][0], yes=upper)
    _add_search(code, places[:half])
    code.place(upper)
    _add_search(code, places[half:])


def _add_arguments(code: _Assembly) -> None:
    """Add checks of arguments; the kernel uses only the low 32 bits of these."""
    code.place("ioctl")
    code.add(_LOAD, _argument(1))
    for request in TERMINAL_INPUT:
        code.add(_EQUAL, request, yes="denied")
    code.add(_RETURN, _ALLOW)
    code.place("clone")
    code.add(_LOAD, _argument(0))
    code.add(_ANY_BIT, NEW_NAMESPACES, yes="denied", no="allowed")
    code.place("socket")
    code.add(_LOAD, _argument(0))
    for family in FAMILIES:
        code.add(_EQUAL, family, yes="allowed")
    code.add(_EQUAL, AF_NETLINK, no="no family")
    code.add(_LOAD, _argument(2))
    code.add(_EQUAL, NETLINK_ROUTE, yes="allowed", no="no family")
    code.place("personality")
    code.add(_LOAD, _argument(0))
    for value in PERSONALITIES:
        code.add(_EQUAL, value, yes="allowed")
    code.add(_RETURN, _ERRNO | errno.EPERM)


def _argument(index: int) -> int:
    """Return the offset of an argument's low half; all machines are little-endian."""
    return _ARGS_AT + _ARG_BYTES * index


HERE: Final = MACHINES.get(os.uname().machine)
PROGRAM: Final = compiled(HERE) if HERE is not None else b""
"""The filter for this machine; empty if its architecture is unknown."""


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


_FILTER: Final = _Filter(len(PROGRAM) // _INSTRUCTION.size, PROGRAM)
_libc = ctypes.CDLL(None, use_errno=True)


def install() -> None:
    """Apply the filter to this process and all its children, irrevocably."""
    if HERE is None:
        return
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "no way to renounce new rights")
    # Avoid the speculation penalty that older kernels tie to filters.
    args = (_SET_MODE_FILTER, _SPEC_ALLOW, ctypes.byref(_FILTER))
    if _libc.syscall(HERE.seccomp, *args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no filter of system calls: {os.strerror(number)}")
