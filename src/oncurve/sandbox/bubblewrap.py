"""The command line that starts a fork server inside bubblewrap."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from oncurve.sandbox.settings import SandboxSettings
from oncurve.types import ConfigError

PROGRAM_UID = 65534
"""The user that programs run as: nobody."""

RUNTIME = "/runtime"
_INSIDE = Path(__file__).parent / "inside"
_SYSTEM = ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_BOOTSTRAP = "import sys; sys.path.append({runtime!r}); from inside.server import main; main()"


def base_python() -> Path:
    """The interpreter behind a virtual environment."""
    return Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()


def isolated_command(settings: SandboxSettings) -> list[str]:
    """The command; ``--USER`` stands where the launcher puts the user namespace, the configuration follows at the end.

    Raises:
        ConfigError: bubblewrap is not installed.
    """
    program = shutil.which(settings.bwrap)
    if program is None:
        raise ConfigError(
            f"there is no {settings.bwrap!r} on PATH, which isolates untrusted programs. Install bubblewrap "
            f"(apt install bubblewrap, dnf install bubblewrap), or name it in sandbox.bwrap. {without_isolation()}"
        )
    python = base_python()
    home = _python_home(python)
    return [
        *(program, "--cap-drop", "ALL", "--USER", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "sandbox"),
        *("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_PTRACE"),
        *("--clearenv", *_as_options("--setenv", environment(home))),
        *_root(home),
        *_bound(settings),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--", inside_path(python, home), *server_arguments(RUNTIME)),
    ]


def server_arguments(runtime: str) -> list[str]:
    """Arguments of the interpreter that runs the fork server."""
    return ["-s", "-S", "-P", "-c", _BOOTSTRAP.format(runtime=runtime)]


def outside_runtime() -> str:
    """The directory that the fork server is imported from when it runs outside bubblewrap."""
    return str(_INSIDE.parent)


def environment(home: Path | None) -> dict[str, str]:
    """Everything that a program finds in its environment. The same hash seed for all: verdicts repeat."""
    found = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108  private to each program
        "TMPDIR": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return found if home is None else found | {"LD_LIBRARY_PATH": "/python/lib"}


def package_directories(settings: SandboxSettings) -> list[str]:
    """Where the packages that programs may import lie outside."""
    if not settings.site_packages:
        return []
    return list(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")))


def inside_packages(settings: SandboxSettings) -> list[str]:
    """Where they lie inside."""
    return [f"/packages/{number}" for number, _ in enumerate(package_directories(settings))]


def without_isolation() -> str:
    """What to type instead, and what that means."""
    return (
        'To run programs without isolation, write sandbox.isolation = "none": model-written programs then run as '
        f"user {os.geteuid()}, can read and delete this user's files, look into the process that grades them, use the "
        "network, and leave processes behind."
    )


def _python_home(python: Path) -> Path | None:
    """The installation to mount, None when /usr holds it."""
    home = Path(sys.base_prefix).resolve()
    return None if home.is_relative_to("/usr") and python.is_relative_to("/usr") else home


def inside_path(python: Path, home: Path | None) -> str:
    """The interpreter's path inside. The installation is mounted apart from its own path, which may name a user."""
    return str(python) if home is None else f"/python/{python.relative_to(home)}"


def _root(home: Path | None) -> list[str]:
    """The read-only system: /usr, its libraries, five devices, the interpreter, a place for the private directory."""
    options = [part for name in ("/etc", RUNTIME, "/dev") for part in ("--perms", "0755", "--dir", name)]
    options += ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for name in _SYSTEM:
        if Path(name).is_symlink():
            options += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).exists():
            options += ["--ro-bind", name, name]
    if home is not None:
        options += ["--ro-bind", str(home), "/python"]
    options += ["--ro-bind", str(_INSIDE), f"{RUNTIME}/inside", "--proc", "/proc", "--dir", "/tmp"]  # noqa: S108
    options += ["--tmpfs", "/dev", "--symlink", "/tmp", "/dev/shm", "--symlink", "/proc/self/fd", "/dev/fd"]  # noqa: S108
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        options += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    for name in _DEVICES:
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return options


def _bound(settings: SandboxSettings) -> list[str]:
    pairs = list(zip(package_directories(settings), inside_packages(settings), strict=True))
    pairs += [(str(path), str(path)) for path in settings.read_only_paths]
    above = dict.fromkeys(str(parent) for path in settings.read_only_paths for parent in [*path.parents][-2::-1])
    # Made here, since bubblewrap makes missing directories for its own user only.
    options = [part for directory in above for part in ("--perms", "0755", "--dir", directory)]
    return options + [part for outside, inside in pairs for part in ("--ro-bind", outside, inside)]


def _as_options(option: str, pairs: dict[str, str]) -> list[str]:
    return [part for name, value in pairs.items() for part in (option, name, value)]
