"""A node that a task attacks, and programs that try to get out of a sandbox.

Each probe prints `ESCAPED` if it got what it must not get. It is run after `PRELUDE`,
and with the variables that `Node.names` gives.
"""

import ctypes
import os
import socket
import subprocess
from pathlib import Path

from shoal.drivers.sandbox import seccomp

KEY = "node-key-5f1d"
KEY_NAME = f"shoal-probe-{os.getpid()}"
MACHINE = seccomp.HERE or seccomp.MACHINES["x86_64"]
NUMBERS = {
    name: numbers[MACHINE.column]
    for name, numbers in seccomp.DENIED.items()
    if numbers[MACHINE.column] is not None
}
SESSION_KEYRING = -3
_REVOKE = 3


def _lend_key(called: str) -> int:
    """Put a key into the keyring of this session; return it, or -1 if that fails."""
    libc = ctypes.CDLL(None)
    name, data = called.encode(), KEY.encode()
    number = NUMBERS["add_key"]
    made: int = libc.syscall(number, b"user", name, data, len(data), SESSION_KEYRING)
    return made


class Node:
    """What a task must not reach."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "tasks"
        self.key = home / "node.key"
        self.key.write_text(KEY, encoding="ascii")
        self.other = self.root / "other.work"
        self.other.mkdir(parents=True)
        (self.other / "data").write_text(KEY, encoding="ascii")
        self.api = socket.socket(socket.AF_UNIX)
        self.api.bind(str(home / "node.sock"))
        (home / "node.sock").chmod(0o777)
        self.api.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0{home.name}")
        self.abstract.listen()
        self.web = socket.create_server(("127.0.0.1", 0))
        self.victim = subprocess.Popen(["/bin/sleep", "3600"])
        self.key_name = f"{KEY_NAME}-{home.name}"
        self.lent = _lend_key(self.key_name)

    def names(self) -> dict[str, str]:
        return {
            "HOME_DIR": str(self.home),
            "KEY_FILE": str(self.key),
            "OTHER": str(self.other),
            "API": str(self.home / "node.sock"),
            "ABSTRACT": self.home.name,
            "PORT": str(self.web.getsockname()[1]),
            "NODE_PID": str(os.getpid()),
            "VICTIM": str(self.victim.pid),
            "KEY": KEY,
            "KEY_NAME": self.key_name,
        }

    def close(self) -> None:
        if self.lent >= 0:
            ctypes.CDLL(None).syscall(NUMBERS["keyctl"], _REVOKE, self.lent)
        self.victim.kill()
        self.victim.wait()
        for each in (self.api, self.abstract, self.web):
            each.close()


PRELUDE = """
import ctypes, errno, os, socket, stat, subprocess, sys, time
E = os.environ
libc = ctypes.CDLL(None, use_errno=True)
def escaped(what=""): print("ESCAPED", what, flush=True)
def reads(path):
    try:
        return open(path, errors="replace").read(4096)
    except OSError:
        return ""
def connects(kind, address):
    s = socket.socket(kind, socket.SOCK_STREAM); s.settimeout(1)
    try:
        s.connect(address); return True
    except OSError:
        return False
def works(call, *args):
    return call(*args) == 0
def calls(name, *args):
    return libc.syscall(NUMBERS[name], *args)
"""
PRELUDE += f"NUMBERS, CLONE = {NUMBERS!r}, {MACHINE.clone}\n"

PROBES = {
    "reading the key of the node": "if reads(E['KEY_FILE']): escaped()",
    "listing the home of the node": "if os.path.exists(E['HOME_DIR']): escaped()",
    "reading the work of another task": "if reads(E['OTHER'] + '/data'): escaped()",
    "finding the key anywhere it can look": """
found = subprocess.run(["grep", "-rlsF", "--exclude-dir=usr", "--exclude-dir=proc",
    "--exclude-dir=sys", E["KEY"], "/"], capture_output=True, timeout=20, env={})
if found.stdout: escaped(found.stdout)
""",
    "reading users' homes": """
for home in ("/root", "/home"):
    if os.path.exists(home): escaped(home)
""",
    "reading password hashes": "if reads('/etc/shadow'): escaped()",
    "reading host keys and settings": """
for path in ("/etc/ssh", "/etc/sudoers", "/etc/machine-id", "/var", "/boot", "/srv"):
    if os.path.exists(path): escaped(path)
""",
    "seeing processes of the node": """
if len([n for n in os.listdir("/proc") if n.isdigit()]) > 8: escaped()
for n in os.listdir("/proc"):
    if n.isdigit() and "TRIED" not in reads(f"/proc/{n}/cmdline"): escaped(n)
""",
    "reading the environment of the node": """
if reads(f"/proc/{E['NODE_PID']}/environ"): escaped()
""",
    "getting out by the root of another process": """
for n in os.listdir("/proc"):
    if n.isdigit() and os.path.exists(f"/proc/{n}/root" + E["KEY_FILE"]): escaped(n)
""",
    "getting out by the working directory of another process": """
for n in os.listdir("/proc"):
    if n.isdigit() and reads(f"/proc/{n}/cwd/" + E["KEY_FILE"]): escaped(n)
""",
    "getting out by open files of its own": """
for fd in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    if int(fd) > 2 and not target.startswith(("/proc", "/job")): escaped(target)
""",
    "killing a process outside": """
try:
    os.kill(int(E["VICTIM"]), 9); escaped()
except (ProcessLookupError, PermissionError):
    pass
""",
    "killing everything it can": """
child = os.fork()
if child == 0:
    try:
        os.kill(-1, 9)
    except OSError:
        pass
    os._exit(0)
os.waitpid(child, 0)
""",
    "tracing a process outside": """
if works(libc.ptrace, 16, int(E["VICTIM"]), 0, 0): escaped()
""",
    "reading the environment of whoever started it": """
for n in os.listdir("/proc"):
    if n.isdigit() and "NODE_SECRET" in reads(f"/proc/{n}/environ"): escaped(n)
""",
    "reaching a server of the machine": """
if connects(socket.AF_INET, ("127.0.0.1", int(E["PORT"]))): escaped()
""",
    "reaching the network": """
links = "/sys/class/net"
names = os.listdir(links) if os.path.isdir(links) else []
if [n for n in names if n != "lo"]: escaped(names)
if connects(socket.AF_INET, ("1.1.1.1", 53)): escaped("1.1.1.1")
routes = reads("/proc/net/route").splitlines()[1:]
if routes: escaped(routes)
""",
    "sending raw packets": """
for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (17, socket.SOCK_RAW)):
    try:
        socket.socket(family, kind, 1); escaped(family)
    except OSError:
        pass
""",
    "talking to the API of the node": """
if connects(socket.AF_UNIX, E["API"]): escaped()
""",
    "talking to an abstract socket of the machine": """
if connects(socket.AF_UNIX, "\\0" + E["ABSTRACT"]): escaped()
""",
    "finding sockets of the machine": """
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus", "/run/systemd",
    "/run/user", "/tmp/.X11-unix", "/run/podman"):
    if os.path.exists(path): escaped(path)
others = [n for n in os.listdir("/run") if n != "shoal.sock"]
if others: escaped(others)
""",
    "writing outside its work directory": """
for path in ("/", "/usr", "/usr/bin", "/etc", "/bin", "/lib", "/run", "/dev", "/sys",
    "/proc/sys/kernel", "/sys/fs/cgroup"):
    try:
        open(path + "/probe", "w"); escaped(path)
    except OSError:
        pass
""",
    "replacing a program of the machine": """
try:
    open("/usr/bin/env", "r+b"); escaped()
except OSError:
    pass
""",
    "leading out by a symbolic link": """
os.symlink(E["KEY_FILE"], "link"); os.symlink("/", "root")
if reads("link") or reads("root" + E["KEY_FILE"]): escaped()
""",
    "leading out by dots": """
if reads("../../../../../.." + E["KEY_FILE"]) or reads("/job/../" + E["KEY_FILE"]):
    escaped()
os.chdir("..")
if os.path.exists("stdout") or os.path.exists("sockets"): escaped("beside it")
""",
    "linking to a file outside": """
for source in ("/usr/bin/env", E["KEY_FILE"]):
    try:
        os.link(source, "hard"); escaped(source)
    except OSError:
        pass
""",
    "mounting": """
if works(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None): escaped("tmpfs")
if works(libc.mount, b"/usr", b"/usr", None, 32 | 4096, None): escaped("remount")
if works(libc.umount2, b"/usr", 2): escaped("umount")
""",
    "making a device": """
for number in (os.makedev(8, 0), os.makedev(254, 0), os.makedev(1, 1)):
    try:
        os.mknod("disk", 0o600 | stat.S_IFBLK, number); escaped()
    except OSError:
        pass
    try:
        os.mknod("memory", 0o600 | stat.S_IFCHR, number); escaped()
    except OSError:
        pass
""",
    "opening devices of the machine": """
for name in os.listdir("/dev"):
    mode = os.lstat("/dev/" + name).st_mode
    if stat.S_ISBLK(mode): escaped(name)
for path in ("/dev/kmsg", "/dev/mem", "/dev/kvm", "/dev/fuse", "/dev/vda", "/dev/sda",
    "/dev/nvidia0", "/dev/loop-control"):
    if os.path.exists(path): escaped(path)
""",
    "becoming root": """
for call in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0)):
    try:
        call(); escaped()
    except OSError:
        pass
""",
    "gaining rights by a setuid program": """
status = reads("/proc/self/status")
if "NoNewPrivs:\\t1" not in status: escaped("new privileges")
for line in status.splitlines():
    if line.startswith("Cap") and int(line.split()[1], 16): escaped(line)
""",
    "making a namespace in which it is root": """
for flags in (0x10000000, 0x10000000 | 0x20000, 0x20000, 0x40000000, 0x20000000):
    if works(libc.unshare, flags): escaped(hex(flags))
""",
    "entering a namespace of the machine": """
for n in [n for n in os.listdir("/proc") if n.isdigit()] + [E["NODE_PID"]]:
    for kind in ("mnt", "net", "user", "pid"):
        try:
            fd = os.open(f"/proc/{n}/ns/{kind}", os.O_RDONLY)
        except OSError:
            continue
        if works(libc.setns, fd, 0) and os.path.exists(E["KEY_FILE"]): escaped(kind)
""",
    "changing the kernel": """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
    "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/sys/power/state"):
    try:
        os.open(path, os.O_WRONLY); escaped(path)
    except OSError:
        pass
if works(libc.init_module, None, 0, b""): escaped("module")
if works(libc.sethostname, b"x", 1): escaped("hostname")
if works(libc.reboot, 0): escaped("reboot")
""",
    "leaving the root directory": """
os.makedirs("jail", exist_ok=True)
try:
    os.chroot("jail"); escaped()
except OSError:
    pass
""",
    "opening a file by its handle": """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int),
        ("data", ctypes.c_ubyte * 128)]
handle = Handle(bytes=8, type=1); handle.data[0] = 2
fd = os.open("/usr", os.O_RDONLY)
if libc.open_by_handle_at(fd, ctypes.byref(handle), os.O_RDONLY) >= 0: escaped()
""",
    "pushing input into a terminal": """
import fcntl, termios
for fd in (0, 1, 2):
    try:
        fcntl.ioctl(fd, termios.TIOCSTI, b"x"); escaped()
    except OSError:
        pass
try:
    os.open("/dev/tty", os.O_RDWR); escaped("tty")
except OSError:
    pass
""",
    "sharing memory with the machine": """
if libc.shmget(0x5f1d5f1d, 1, 0) >= 0: escaped()
if [n for n in os.listdir("/dev/shm")]: escaped(os.listdir("/dev/shm"))
""",
    "reading keys that the kernel keeps for the user": """
if reads("/proc/keys"): escaped(reads("/proc/keys"))
if reads("/proc/key-users"): escaped("users")
for ring in (-1, -2, -3, -4, -5):
    if calls("keyctl", 0, ring, 0) >= 0: escaped(ring)
    if calls("keyctl", 10, ring, b"user", E["KEY_NAME"].encode(), 0) >= 0: escaped()
if calls("request_key", b"user", E["KEY_NAME"].encode(), None, 0) >= 0: escaped()
if calls("add_key", b"user", b"left", b"data", 4, -4) >= 0: escaped("added")
""",
    "reading where its folders lie outside": """
for name in ("mountinfo", "mounts", "mountstats", "cgroup", "uid_map", "cmdline"):
    if E["HOME_DIR"] in reads("/proc/self/" + name): escaped(name)
if reads("/proc/self/mountinfo"): escaped("mounts")
if E["HOME_DIR"] in os.readlink("/proc/self/cwd"): escaped("cwd")
""",
    "reading who lends the machine": """
for path in ("/etc/passwd", "/etc/group", "/etc/hostname", "/proc/cmdline"):
    if reads(path): escaped(path)
if socket.gethostname() != "shoal": escaped(socket.gethostname())
""",
    "calls that the filter denies": """
for name in NUMBERS:
    found = calls(name, 0, 0, 0)
    if found >= 0 or ctypes.get_errno() != errno.EPERM: escaped(name)
""",
    "calls that are newer than the filter": """
for number in (470, 471, 499, 1000, 0x40000000 | 39, 0x40000000 | 520):
    if libc.syscall(number, 0, 0, 0) >= 0: escaped(number)
    if ctypes.get_errno() != errno.ENOSYS: escaped((number, ctypes.get_errno()))
if libc.syscall(435, None, 0) >= 0 or ctypes.get_errno() != errno.ENOSYS:
    escaped("clone3")
""",
    "calls of 32-bit programs": """
import mmap, platform
if platform.machine() == "x86_64":
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes.fromhex("b814000000cd80c3"))  # getpid, as i386 calls it
    place = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if ctypes.CFUNCTYPE(ctypes.c_int)(place)() != -errno.ENOSYS: escaped()
""",
    "making a namespace with a new process": """
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000):
    found = libc.syscall(CLONE, flag | 17, 0, 0, 0, 0)
    if found == 0: os._exit(0)
    if found > 0 or ctypes.get_errno() != errno.EPERM: escaped(hex(flag))
""",
    "tracing a process of its own": """
child = os.fork()
if child == 0: time.sleep(60)
if works(libc.ptrace, 16, child, 0, 0): escaped()
os.kill(child, 9)
""",
    "the ring of the kernel": """
if calls("io_uring_setup", 8, ctypes.create_string_buffer(256)) >= 0: escaped()
""",
    "sockets of rare families": """
for family in range(46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            socket.socket(family, kind, 0)
        except OSError:
            continue
        if family not in (1, 2, 10, 16): escaped(family)
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4); escaped("list of sockets")
except OSError:
    pass
""",
    "changing settings of the kernel": """
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        try:
            with open(f"{folder}/{name}", "rb") as file: was = file.read()
            with open(f"{folder}/{name}", "wb", buffering=0) as file: file.write(was)
        except OSError:
            continue
        escaped(f"{folder}/{name}")
""",
}
