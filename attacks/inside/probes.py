"""Runs as a task in somebody's sandbox, tries to get out, and prints what it got.

Only the standard library is here. One JSON object a line: the probe, whether it got
anywhere, and what it saw. It is told where the lender's things are: a secret place
would protect nobody.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import socket
from pathlib import Path

TOLD = json.loads(Path("told.json").read_text())
LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
# By name: the number on x86-64, on aarch64, and arguments that a kernel would look at.
CALLS = {
    "keyctl": ((250, 219), (0, -3, 1)),
    "add_key": ((248, 217), (b"user", b"shoal", b"x", 1, -3)),
    "request_key": ((249, 218), (b"user", b"shoal", None, -3)),
    "bpf": ((321, 280), (0, None, 0)),
    "perf_event_open": ((298, 241), (None, 0, -1, -1, 0)),
    "userfaultfd": ((323, 282), (0,)),
    "io_uring_setup": ((425, 425), (1, None)),
    "mount": ((165, 40), (b"none", b"/tmp", b"tmpfs", 0, None)),
    "umount2": ((166, 39), (b"/proc", 0)),
    "open_tree": ((428, 428), (-100, b"/", 1)),
    "fsopen": ((430, 430), (b"tmpfs", 0)),
    "move_mount": ((429, 429), (-1, b"", -1, b"", 0)),
    "pivot_root": ((155, 41), (b"/tmp", b"/tmp")),
    "unshare user": ((272, 97), (0x10000000,)),
    "unshare mount": ((272, 97), (0x00020000,)),
    "setns": ((308, 268), (0, 0)),
    "init_module": ((175, 105), (None, 0, b"")),
    "finit_module": ((313, 273), (0, b"", 0)),
    "delete_module": ((176, 106), (b"x", 0)),
    "kexec_load": ((246, 104), (0, 0, None, 0)),
    "reboot": ((169, 142), (0, 0, 0, None)),
    "swapon": ((167, 224), (b"/tmp/x", 0)),
    "settimeofday": ((164, 170), (None, None)),
    "open_by_handle_at": ((304, 265), (-1, None, 0)),
    "name_to_handle_at": ((303, 264), (-100, b"/", None, None, 0)),
    "quotactl": ((179, 60), (0, None, 0, None)),
    "acct": ((163, 89), (None,)),
    "syslog": ((103, 116), (3, None, 0)),
    "process_vm_readv": ((310, 270), (1, None, 0, None, 0, 0)),
    "kcmp": ((312, 272), (1, 1, 0, 0, 0)),
    "lookup_dcookie": ((212, 18), (0, None, 0)),
    "personality": ((135, 92), (0x0040000,)),
}
REFUSED = {errno.EPERM, errno.ENOSYS, errno.EACCES}


def say(probe: str, got: bool, seen: object) -> None:
    """Print what a probe came to."""
    print(json.dumps({"probe": probe, "got": got, "seen": str(seen)[:300]}), flush=True)


def syscalls() -> None:
    """Call what no task needs. Only a definite no counts as refused."""
    got = []
    for name, (numbers, arguments) in CALLS.items():
        ctypes.set_errno(0)
        number = numbers[0] if X86 else numbers[1]
        result = LIBC.syscall(ctypes.c_long(number), *arguments)
        code = ctypes.get_errno()
        if result >= 0 or code not in REFUSED:
            got.append(f"{name}: {errno.errorcode.get(code, result)}")
    say("syscalls", bool(got), got or f"{len(CALLS)} calls refused")


def other_abis() -> None:
    """Call through the ABI of x32, whose numbers a careless filter lets through."""
    if not X86:
        say("other abis", False, "not on x86-64")
        return
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(0x40000000 + 250), 0, -3, 1)
    say("other abis", result >= 0, errno.errorcode.get(ctypes.get_errno(), result))


def files() -> None:
    """Read what belongs to the lender, by every way to write its path."""
    got = []
    for path in TOLD["private"]:
        for way in (
            path,
            f"/proc/self/root{path}",
            f"/proc/1/root{path}",
            f"/job/../..{path}",
            f"/mnt{path}",
            f"/run{path}",
        ):
            try:
                got.append(f"{way}: {Path(way).read_bytes()[:20]!r}")
            except OSError:
                continue
    say("files", bool(got), got or f"{len(TOLD['private'])} files are not here")


def writing() -> None:
    """Write where others would find it."""
    got = []
    for path in (
        "/usr/bin/evil",
        "/etc/evil",
        "/evil",
        "/dev/evil",
        "/proc/sys/kernel/core_pattern",
        "/sys/kernel/uevent_helper",
        "/lib/evil",
        "/run/evil",
    ):
        try:
            Path(path).write_text("evil")
        except OSError:
            continue
        got.append(path)
    say("writing", bool(got), got or "nothing outside can be written")


def processes() -> None:
    """See and signal processes that are not ours."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    foreign = []
    for pid in pids:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"shoal" in line and b"up" in line.split(b"\0"):
            foreign.append(pid)
    hit = []
    for pid in (TOLD["pid"], TOLD["pid"] + 1):
        try:
            os.kill(pid, 0)
        except OSError:
            continue
        hit.append(pid)
    seen = f"{len(pids)} processes here; of the lender {foreign}; signalled {hit}"
    say("processes", bool(foreign) or (bool(hit) and TOLD["pid"] > 1000), seen)


def network() -> None:
    """Reach the lender's own services, its network and the world."""
    got = []
    for host, port in TOLD["services"]:
        with socket.socket() as one:
            one.settimeout(1.0)
            try:
                one.connect((host, port))
            except OSError:
                continue
            got.append(f"{host}:{port}")
    for name in TOLD["abstract"]:
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.connect(f"\0{name}")
            except OSError:
                continue
            got.append(f"@{name}")
    say("network", bool(got), got or "nothing answers")


def raw_sockets() -> None:
    """Open sockets that see or forge what others send."""
    got = []
    for family, kind, name in (
        (17, socket.SOCK_RAW, "packet"),
        (2, socket.SOCK_RAW, "raw ip"),
        (40, socket.SOCK_STREAM, "vsock"),
        (38, socket.SOCK_SEQPACKET, "alg"),
    ):
        try:
            socket.socket(family, kind, 1 if name == "raw ip" else 0).close()
        except OSError:
            continue
        got.append(name)
    say("raw sockets", bool(got), got or "none opens")


def mounts() -> None:
    """Look for names of the lender in what the kernel says of mounts."""
    seen = []
    for path in (
        "/proc/self/mountinfo",
        "/proc/self/mounts",
        "/proc/mounts",
        "/proc/self/mountstats",
        "/proc/self/cgroup",
        "/proc/self/maps",
    ):
        try:
            text = Path(path).read_text(errors="replace")
        except OSError:
            continue
        seen += [
            f"{path}: {line}"
            for line in text.splitlines()
            if any(name in line for name in TOLD["names"])
        ]
    say("mounts", bool(seen), seen[:3] or "no name of the lender")


def names() -> None:
    """Learn who the lender is."""
    told = {
        "hostname": socket.gethostname(),
        "environ": str(dict(os.environ)),
        "passwd": Path("/etc/passwd").read_text()
        if Path("/etc/passwd").exists()
        else "",
    }
    seen = [
        f"{where}: {name}"
        for where, text in told.items()
        for name in [*TOLD["names"], TOLD["hostname"], TOLD["prize"]]
        if name and name in text
    ]
    say("names", bool(seen), seen or f"hostname {told['hostname']}")


def privileges() -> None:
    """Become somebody else."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    caps = {
        key: int(fields[key].strip(), 16)
        for key in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")
    }
    got = [key for key in ("CapEff", "CapPrm", "CapInh", "CapAmb") if caps[key]]
    if fields["NoNewPrivs"].strip() != "1":
        got.append("no_new_privs is off")
    if fields.get("Seccomp", "0").strip() != "2":
        got.append("no seccomp filter")
    for name, call in (("setuid", os.setuid), ("setgid", os.setgid)):
        try:
            call(0)
        except OSError:
            continue
        got.append(name)
    say("privileges", bool(got), got or "none")


def devices() -> None:
    """Open devices that are not the task's."""
    got = []
    for name in (
        "mem",
        "kmem",
        "port",
        "kmsg",
        "fuse",
        "kvm",
        "loop-control",
        "vda",
        "sda",
        "nvme0n1",
        "net/tun",
        "vhost-net",
        "uinput",
        "input/event0",
    ):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
        except OSError:
            continue
        got.append(name)
    for kind, major, minor in ((0o020600, 1, 1), (0o060600, 254, 0)):
        try:
            os.mknod("/tmp/device", kind, os.makedev(major, minor))
        except OSError:
            continue
        got.append("mknod")
    say("devices", bool(got), got or "none opens")


def tracing() -> None:
    """Trace the process above, which is not ours."""
    ctypes.set_errno(0)
    result = LIBC.ptrace(16, TOLD["pid"], None, None)
    above = LIBC.ptrace(16, 1, None, None)
    say("tracing", result == 0 or above == 0, f"{result} and {above}")


def keyrings() -> None:
    """See keys of the lender's session."""
    try:
        text = Path("/proc/keys").read_text()
    except OSError:
        text = ""
    say("keyrings", TOLD["key"] in text, text[:100] or "no keys")


def terminal() -> None:
    """Type into the terminal of whoever started the node."""
    got = []
    try:
        here = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        here = -1
    if here >= 0:
        import fcntl

        try:
            fcntl.ioctl(here, 0x5412, b"x")
            got.append("TIOCSTI")
        except OSError:
            pass
    say("terminal", bool(got), got or "no terminal")


def limits() -> None:
    """Look at what bounds us: more processes than this hurt everybody."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    cores = resource.getrlimit(resource.RLIMIT_CORE)[0]
    say("limits", most < 0 or most > 10_000, f"{most} processes, core files {cores}")


def descriptors() -> None:
    """Use what the lender left open."""
    got = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if any(private in target for private in [*TOLD["private"], *TOLD["names"]]):
            got.append(target)
    say("descriptors", bool(got), got or "none of the lender's")


def ghosts() -> None:
    """Leave a process behind that outlives us."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            libc_name = TOLD["ghost"].encode()
            LIBC.prctl(15, libc_name, 0, 0, 0)
            for descriptor in range(3):
                os.close(descriptor)
            signal.pause()
        os._exit(0)
    os.wait()
    say("ghosts", False, "one was left")


def tells() -> None:
    """Say to the worker what no honest task would."""
    where = os.environ.get("SHOAL_SOCKET", "")
    answers = []
    lines: list[bytes] = [
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b"{}\n" * 100,
        b'{"call": 1}\n',
        json.dumps({"call": "get", "blob": "x" * 60_000, "path": "y"}).encode() + b"\n",
        json.dumps({"call": "get", "blob": "x", "path": "../../y"}).encode() + b"\n",
        json.dumps(
            {"call": "get", "blob": "x", "path": "y", "nodes": ["z" * 50_000]}
        ).encode()
        + b"\n",
        json.dumps({"call": "put", "path": "/etc/shadow"}).encode() + b"\n",
        json.dumps({"call": "put", "path": "leak"}).encode() + b"\n",
        json.dumps({"call": "checkpoint", "path": "../.."}).encode() + b"\n",
        json.dumps({"call": "send", "to": "t" * 60_000, "data": "x"}).encode() + b"\n",
        json.dumps({"call": "mail", "to": "t" * 60_000, "data": "x"}).encode() + b"\n",
        json.dumps({"call": "post", "to": "\0" * 100, "data": "x"}).encode() + b"\n",
        json.dumps({"metrics": {"\x1b[2J" * 30: 1e400}, "progress": -1}).encode()
        + b"\n",
        json.dumps({"metrics": {str(n): n for n in range(4_000)}}).encode() + b"\n",
    ]
    try:
        os.symlink(TOLD["private"][0], "leak")
    except OSError:
        pass
    for line in lines:
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(0.5)
                one.connect(where)
                one.sendall(line)
                answers.append(one.recv(200).decode(errors="replace"))
        except OSError as error:
            answers.append(str(error))
    blobs = [text for text in answers if '"blob"' in text]
    say("tells", bool(blobs), blobs or answers[4][:100])


for probe in (
    syscalls,
    other_abis,
    files,
    writing,
    processes,
    network,
    raw_sockets,
    mounts,
    names,
    privileges,
    devices,
    tracing,
    keyrings,
    terminal,
    limits,
    descriptors,
    ghosts,
    tells,
):
    try:
        probe()
    except Exception as error:
        say(probe.__name__.replace("_", " "), False, f"{type(error).__name__}: {error}")
