"""What a forked process gives up before it runs a program: namespaces, files, rights, limits."""

import ctypes
import os
import resource
import signal
import sys
from typing import Any

_CLONE_NR = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "loongarch64": 220}
_NEWNS, _NEWIPC, _NEWPID = 0x0002_0000, 0x0800_0000, 0x2000_0000
_PR_DUMPABLE, _PR_SECCOMP, _PR_CAPBSET_DROP, _PR_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 22, 24, 38, 47
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8

# PyDLL keeps the interpreter's lock: a raw clone must not come back in a process that waits for it.
_libc = ctypes.PyDLL(None, use_errno=True)
_OWN_CAPABILITIES = (ctypes.c_uint32 * 2)(0x2008_0522, 0)  # version 3, of the caller
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()
CHANNEL, LINK = 3, 4
"""Descriptors that a forked process finds: its own channel, and the link of a tester to its program."""
_FIRST_FREE = 10

WORK_DIR = "/tmp"  # noqa: S108  private to each program: a tmpfs of its own is mounted there


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def clone_isolated() -> int:
    """Fork into new pid, mount and ipc namespaces. Returns as ``os.fork`` does; the child is process 1 there."""
    flags = _NEWPID | _NEWNS | _NEWIPC | signal.SIGCHLD
    return _check(_libc.syscall(_CLONE_NR[os.uname().machine], flags, 0, 0, 0, 0), "clone")


def occupy_low_descriptors() -> None:
    """Keep 0..9 open, so that a received descriptor is never one of the numbers it will be moved to."""
    while os.open(os.devnull, os.O_RDWR) < _FIRST_FREE:
        pass


def drop_bounding_set() -> None:
    """No capability can be gained by executing a file, here and in every child."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return


def set_subreaper() -> None:
    """Orphans of the children become children of this process."""
    _libc.prctl(36, 1, 0, 0, 0)


class Filter:
    """A compiled seccomp filter, ready to be loaded by a child."""

    def __init__(self, code: bytes) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = ctypes.create_string_buffer(16)
        ctypes.c_uint16.from_buffer(self._program, 0).value = len(code) // 8
        ctypes.c_uint64.from_buffer(self._program, 8).value = ctypes.addressof(self._code)

    def load(self) -> None:
        _check(_libc.prctl(_PR_SECCOMP, 2, ctypes.byref(self._program), 0, 0), "seccomp")


def mount_private(disk_bytes: int, *, with_proc: bool) -> None:
    """A tmpfs of the program's own in place of the working directory, and a /proc that shows its own processes."""
    options = f"size={disk_bytes},nr_inodes=8192,mode=1777".encode()
    mount = _libc.mount
    _check(mount(b"tmpfs", WORK_DIR.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options), "mount tmpfs")
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if with_proc:
        _check(mount(b"proc", b"/proc", b"proc", flags, None), "mount proc")
    else:
        _check(mount(b"tmpfs", b"/proc", b"tmpfs", flags, b"size=4096"), "mount an empty proc")


def move_descriptors(received: list[int], targets: list[int]) -> None:
    """Put the received descriptors on their numbers, /dev/null on 0..2 where none came, and close everything else."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2} - set(targets):
        os.dup2(null, number)
    for source, target in zip(received, targets, strict=True):
        os.dup2(source, target)
    kept = max([2, *targets]) + 1
    for number in set(range(3, kept)) - set(targets):
        os.close(number)
    os.closerange(kept, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for number in targets:
        os.set_inheritable(number, number < 3)


def limit(limits: dict[str, Any]) -> None:
    """Set the kernel's limits for one process and for the number of them."""
    memory, processes, cpu_s = limits["memory_bytes"], limits["processes"], limits["cpu_s"]
    wanted = {
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits["disk_bytes"],
        resource.RLIMIT_NOFILE: 256,
    }
    if limits["address_space"]:
        wanted[resource.RLIMIT_AS] = memory
    if processes is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    if sys.platform == "linux":
        wanted[resource.RLIMIT_MSGQUEUE] = 0
    for what, value in wanted.items():
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))
    if limits["stack_bytes"]:
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        wanted_stack = limits["stack_bytes"] if hard == resource.RLIM_INFINITY else min(limits["stack_bytes"], hard)
        resource.setrlimit(resource.RLIMIT_STACK, (wanted_stack, hard))


def become(uid: int | None) -> None:
    """Become an ordinary user, where this process may, and give up every capability for good."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    _check(_libc.capset(_OWN_CAPABILITIES, _NO_CAPABILITIES), "capset")
    _libc.prctl(_PR_DUMPABLE, 1, 0, 0, 0)  # it may look at itself in /proc; others have other rights or another user


def forbid_new_rights() -> None:
    _check(_libc.prctl(_PR_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def first_victim() -> None:
    """When the machine runs out of memory, the kernel ends this process before any other."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return  # no /proc to write to
    os.write(fd, b"1000")
    os.close(fd)
