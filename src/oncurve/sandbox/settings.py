"""How untrusted programs are isolated, and what each of them may use."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from oncurve.types import Settings


class SandboxSettings(Settings):
    """Isolation and limits of untrusted programs."""

    isolation: Literal["namespaces", "none"] = "namespaces"
    """``namespaces``: bubblewrap, no network, no files of yours, a process tree that dies as one. ``none``: programs
    run as you, can read your files and the memory of your processes, and use the network."""

    memory_bytes: int = Field(1024**3, ge=64 * 1024**2)
    """Memory of all processes of a program together; also the address space of each."""

    max_processes: int = Field(64, ge=1, le=4096)
    """Processes and threads of a program together."""

    disk_bytes: int = Field(64 * 1024**2, ge=1024**2)
    """What a program may write to its private temporary directory; also the size of each file."""

    max_output_bytes: int = Field(4 * 1024**2, ge=1024, le=256 * 1024**2)
    """Longest output of a program for one case."""

    num_workers: int = Field(0, ge=0, le=1024)
    """Programs that run at the same time; 0 for one on each core that this process may use."""

    site_packages: bool = False
    """Programs may import what is installed beside oncurve (read-only), not only the standard library."""

    read_only_paths: tuple[Path, ...] = ()
    """More files and directories that programs may read, at the same paths: a compiler outside /usr, data."""

    bwrap: str = "bwrap"
    """The bubblewrap program, by name or path."""
