"""The environment of the peer that a benchmark measures against: made at the first use, kept in the cache."""

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from hashlib import blake2b
from pathlib import Path

ROOT = Path(__file__).parent.parent


def ensure(requirements: Path) -> Path:
    """Python of an environment with these requirements and what the torch-free half of oncurve needs.

    It is named by a digest of the pins, so that changed pins make a new one. Making it takes minutes and 1.5 GB.
    """
    light = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    pins = requirements.read_text(encoding="utf-8")
    digest = blake2b("\n".join([pins, *light, sys.version]).encode(), digest_size=4).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncurve" / "benchmarks"
    place = cache / f"{requirements.stem}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two benchmarks at once make it once
        if not (place / "complete").is_file():
            _make(place, requirements, light)
    return place / "bin" / "python"


def _make(place: Path, requirements: Path, light: list[str]) -> None:
    print(f"Making {place}: once, some minutes, 1.5 GB ...", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", ROOT / "constraints.txt"]
    subprocess.run([*pip, *constraints, "--requirement", requirements, *light], check=True, stdout=sys.stderr)
    (place / "complete").touch()
