"""Starts bubblewrap and ends it when whoever asked for it is gone.

Run by path, standard library only. It watches its parent through a process descriptor, so nothing is left when the
parent is killed; bubblewrap and all that is in it die with this process.

Root starts programs as another user: it makes a user namespace that knows two users, itself for the set-up and
``nobody`` for programs, and hands it to bubblewrap. Anybody else gets a user namespace that knows one user.
"""

import ctypes
import json
import os
import select
import signal
import subprocess  # noqa: TID251  this package is its home
import sys

_NEWUSER = 0x1000_0000
_PR_SET_PDEATHSIG = 1


def two_user_namespace(uid: int) -> int | None:
    """A descriptor of a user namespace that maps root and ``uid``; None where this process may not make one."""
    ready_read, ready_write = os.pipe()
    wait_read, wait_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        result = ctypes.CDLL(None).unshare(_NEWUSER)
        os.write(ready_write, b"1" if result == 0 else b"0")
        os.close(wait_write)
        os.read(wait_read, 1)
        os._exit(0)
    try:
        if os.read(ready_read, 1) != b"1":
            return None
        for name in ("gid_map", "uid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file:  # noqa: PTH123
                file.write(f"0 0 1\n{uid} {uid} 1\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    except OSError:
        return None
    finally:
        for fd in (ready_read, ready_write, wait_read, wait_write):
            os.close(fd)
        os.waitpid(pid, 0)


def main() -> int:
    plan = json.loads(sys.argv[1])
    try:
        parent = os.pidfd_open(plan["parent"])
    except ProcessLookupError:
        return 1
    namespace = two_user_namespace(plan["uid"]) if os.geteuid() == 0 else None
    two_users = namespace is not None
    command = list(plan["command"])
    where = command.index("--USER")
    if namespace is not None:
        os.set_inheritable(namespace, True)
        rights = [part for name in ("SETUID", "SETGID") for part in ("--cap-add", f"CAP_{name}")]
        command[where : where + 1] = ["--userns", str(namespace), *rights]
    else:
        command[where : where + 1] = ["--unshare-user", "--uid", str(plan["uid"]), "--gid", str(plan["uid"])]
    plan["config"]["uid"] = plan["uid"] if two_users else None
    # The parent-death signal that bubblewrap sets refers to this process, which has one thread only.
    child = subprocess.Popen([*command, json.dumps(plan["config"])], close_fds=False)
    poller = select.poll()
    poller.register(parent, select.POLLIN)
    poller.register(ended := os.pidfd_open(child.pid), select.POLLIN)
    for fd in plan["config"]["control_fd"], namespace:
        if fd is not None:
            os.close(fd)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if any(fd == ended for fd, _ in poller.poll()):
        return child.wait()
    child.kill()
    child.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
