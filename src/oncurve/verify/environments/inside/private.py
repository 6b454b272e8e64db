"""A directory that nobody else sees and that ends with this process."""

import ctypes
import os
import signal
import sys
import tempfile
from pathlib import Path
from shutil import rmtree

SIZE_BYTES = 16 * 1024**2
_PREFIX = "oncurve-tools-"
_NEWNS, _NEWUSER = 0x0002_0000, 0x1000_0000
_PR_SET_PDEATHSIG = 1
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""System calls without a function in the C library; the numbers are the same on every architecture."""
_SET_STRING, _CREATE = 1, 6
_NOSUID_NODEV_NOEXEC = 2 | 4 | 8


def private_root() -> Path:
    """A file system in memory that is mounted nowhere: it is reached through a descriptor of this process alone.

    Where the system does not allow that, a directory under the temporary one; there, a process that is killed leaves
    its directory behind, and the next to start removes it.
    """
    if sys.platform == "linux":
        fd = _detached_tmpfs()
        if fd < 0 and _enter_user_namespace():
            fd = _detached_tmpfs()
        if fd >= 0:
            return Path(f"/proc/self/fd/{fd}")
    own = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    _sweep(own)
    return own


def _detached_tmpfs() -> int:
    call = ctypes.CDLL(None).syscall
    context = call(_FSOPEN, b"tmpfs", 0)
    if context < 0:
        return -1
    try:
        for key, value in ((b"size", str(SIZE_BYTES).encode()), (b"nr_inodes", b"10000"), (b"mode", b"700")):
            call(_FSCONFIG, context, _SET_STRING, key, value, 0)
        if call(_FSCONFIG, context, _CREATE, None, None, 0) != 0:
            return -1
        return int(call(_FSMOUNT, context, 0, _NOSUID_NODEV_NOEXEC))
    finally:
        os.close(context)


def _enter_user_namespace() -> bool:
    libc, parent, uid, gid = ctypes.CDLL(None), os.getppid(), os.geteuid(), os.getegid()
    if libc.unshare(_NEWUSER | _NEWNS) != 0:
        return False
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # new credentials have cleared it
    if os.getppid() != parent:
        os._exit(1)
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    except OSError:
        return False
    return True


def _sweep(own: Path) -> None:
    for path in own.parent.glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if path != own and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            rmtree(path, ignore_errors=True)
