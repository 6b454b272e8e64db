"""The system calls that a program has no use for, as a filter that the kernel applies."""

import errno
import os
from functools import lru_cache
from typing import Any

_AF_UNIX = 1
_NAMESPACE_FLAGS = (0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x80)
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

REFUSED = (
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "lookup_dcookie"),
    *("name_to_handle_at", "open_by_handle_at", "fanotify_init", "quotactl", "acct", "swapon", "swapoff", "reboot"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "syslog", "vhangup"),
    *("iopl", "ioperm", "modify_ldt", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname"),
    *("setdomainname", "nfsservctl", "mbind", "migrate_pages", "move_pages", "set_mempolicy"),
)
"""Answered with EPERM: the kernel's own doors, and what would outlive a program (keys)."""

ABSENT = (
    "clone3",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "memfd_create",
    "shmget",
    "msgget",
    "semget",
)
"""Answered with ENOSYS, as by an older kernel: callers fall back. Memory files and System V memory escape the count."""


@lru_cache(maxsize=1)
def compiled_filter() -> bytes | None:
    """The filter for this machine; None where libseccomp or its Python binding is missing.

    Sockets other than AF_UNIX are refused as well (there is no network to reach, but ports would remember), and so are
    new namespaces and typing into a terminal.
    """
    try:
        import pyseccomp as library
    except (ImportError, RuntimeError, OSError):
        return None
    rules = library.SyscallFilter(library.ALLOW)
    for action, names in ((library.ERRNO(errno.EPERM), REFUSED), (library.ERRNO(errno.ENOSYS), ABSENT)):
        for name in names:
            _add(library, rules, action, name)
    refuse = library.ERRNO(errno.EPERM)
    _add(library, rules, library.ERRNO(errno.EAFNOSUPPORT), "socket", library.Arg(0, library.NE, _AF_UNIX))
    for flag in _NAMESPACE_FLAGS:
        _add(library, rules, refuse, "clone", library.Arg(0, library.MASKED_EQ, flag, flag))
    for request in _TERMINAL_INPUT:
        _add(library, rules, refuse, "ioctl", library.Arg(1, library.MASKED_EQ, 0xFFFF_FFFF, request))
    with os.fdopen(os.memfd_create("seccomp"), "w+b") as file:  # no disk that could be full
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _add(library: Any, rules: Any, action: Any, name: str, *arguments: Any) -> None:
    try:
        number = library.resolve_syscall(library.system_arch(), name)
    except ValueError:
        return  # unknown to this library, so to no program compiled with it
    if number >= 0:
        rules.add_rule(action, number, *arguments)
