"""The filter of system calls, run as a kernel runs it; what it stops is elsewhere."""

import errno
import os
import struct

import pytest

from shoal.drivers.sandbox import seccomp
from shoal.drivers.sandbox.seccomp import (
    DENIED,
    FIRST_UNKNOWN,
    MACHINES,
    CpuArchitecture,
    compiled,
)

ALLOWED = 0
LOAD, RETURN, EQUAL, AT_LEAST, ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
PROGRAMS_MAX = 4_096
NAMES = list(MACHINES)


def verdict(
    machine: CpuArchitecture, number: int, *args: int, arch: int | None = None
) -> int:
    """Run a filter on one call; return 0 if it may be made, or the error."""
    words = [arg & (1 << 64) - 1 for arg in (*args, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("<IIQ6Q", number, arch or machine.arch, 0, *words)
    program = list(struct.iter_unpack("=HBBI", compiled(machine)))
    at = loaded = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == RETURN:
            return 0 if value == 0x7FFF0000 else value & 0xFFFF
        if code == LOAD:
            loaded = struct.unpack_from("<I", data, value)[0]
            continue
        holds = {
            EQUAL: loaded == value,
            AT_LEAST: loaded >= value,
            ANY_BIT: bool(loaded & value),
        }[code]
        at += yes if holds else no


@pytest.mark.parametrize("name", NAMES)
def test_exactly_what_is_listed_is_denied(name: str) -> None:
    machine = MACHINES[name]
    column = {row[machine.column]: call for call, row in DENIED.items()}
    with_arguments = {
        *(machine.clone, machine.ioctl, machine.personality),
        *(machine.socket, machine.socketpair, machine.clone3),
    }
    assert not with_arguments & column.keys()

    for number in range(FIRST_UNKNOWN):
        if number not in with_arguments:
            expected = errno.EPERM if number in column else ALLOWED
            assert verdict(machine, number) == expected, column.get(number, number)


@pytest.mark.parametrize("name", NAMES)
def test_calls_that_are_newer_or_of_other_machines_do_not_exist(name: str) -> None:
    machine = MACHINES[name]

    assert verdict(machine, FIRST_UNKNOWN) == errno.ENOSYS
    assert verdict(machine, 0x40000000) == errno.ENOSYS  # read, as x32 calls it
    assert verdict(machine, 0xFFFFFFFF) == errno.ENOSYS
    assert verdict(machine, 1, arch=0x40000003) == errno.ENOSYS  # i386
    assert verdict(machine, 1, arch=0x40000028) == errno.ENOSYS  # 32-bit ARM
    assert verdict(machine, machine.clone3) == errno.ENOSYS


@pytest.mark.parametrize("name", NAMES)
def test_a_new_process_gets_no_namespace(name: str) -> None:
    machine = MACHINES[name]
    thread, fork = 0x3D0F00, 0x1200011

    assert verdict(machine, machine.clone, thread) == ALLOWED
    assert verdict(machine, machine.clone, fork) == ALLOWED
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert verdict(machine, machine.clone, fork | 1 << bit) == errno.EPERM


@pytest.mark.parametrize("name", NAMES)
def test_sockets_are_of_few_families(name: str) -> None:
    machine = MACHINES[name]
    for number in (machine.socket, machine.socketpair):
        allowed = [f for f in range(64) if verdict(machine, number, f, 1, 0) == ALLOWED]
        assert allowed == [1, 2, 10, 16]
        assert verdict(machine, number, 40, 1, 0) == errno.EAFNOSUPPORT
        assert verdict(machine, number, 16, 3, 4) == errno.EAFNOSUPPORT
        # The kernel looks at the lower half of these, and so does the filter.
        assert verdict(machine, number, 1 << 32 | 40, 1, 0) == errno.EAFNOSUPPORT
        assert verdict(machine, number, 1 << 32 | 2, 1, 0) == ALLOWED


@pytest.mark.parametrize("name", NAMES)
def test_no_input_goes_into_terminals_and_addresses_stay_random(name: str) -> None:
    machine = MACHINES[name]

    for request in (0x5412, 0x541C, 1 << 32 | 0x5412):
        assert verdict(machine, machine.ioctl, 0, request) == errno.EPERM
    assert verdict(machine, machine.ioctl, 0, 0x5413) == ALLOWED
    assert verdict(machine, machine.personality, 0xFFFFFFFF) == ALLOWED
    assert verdict(machine, machine.personality, 0x40000) == errno.EPERM


def test_a_filter_is_as_long_as_the_kernel_takes() -> None:
    for machine in MACHINES.values():
        assert 8 < len(compiled(machine)) // 8 < PROGRAMS_MAX


@pytest.mark.skipif(os.uname().machine not in MACHINES, reason="no filter for it")
def test_this_machine_has_a_filter() -> None:
    assert seccomp.PROGRAM
