"""What every benchmark here needs: paired runs and their spread, a description of the machine, and its ceilings.

Import it before torch: it sets the environment of threads and of memory, the same for both sides of a comparison. The
malloc settings work only when a process starts with them, so ``restart_with_environment`` starts the script once more.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "1000",
    "MALLOC_MMAP_THRESHOLD_": str(4 * 1024**3),
    "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3),
}
"""Threads that spin some 20 µs and then sleep; memory that stays with the process instead of being faulted in again."""

for _name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
    os.environ.setdefault(_name, ENVIRONMENT[_name])

import torch  # noqa: E402  # reads the variables above when it is loaded


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratios:
    """Ratios of seconds over pairs of runs, each pair back to back."""

    median: float
    min: float
    max: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.2f}x (min {self.min:.2f}, max {self.max:.2f}, {self.pairs} pairs)"

    def as_dict(self) -> dict[str, float]:
        """For ``--json``."""
        return asdict(self)


def restart_with_environment() -> None:
    """Start this script again with ``ENVIRONMENT``, unless it already runs with it. Call it first thing in ``main``."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | ENVIRONMENT)


def seconds_of(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratios_of(values: list[float]) -> Ratios:
    """Median and range."""
    return Ratios(median=statistics.median(values), min=min(values), max=max(values), pairs=len(values))


def interleaved(a: Callable[[], object], b: Callable[[], object], pairs: int) -> Ratios:
    """Seconds of ``b`` over seconds of ``a``: above 1 means that ``a`` is faster.

    Both are run once to warm up, then in pairs, who comes first changing from pair to pair, so that load that comes
    and goes meets both.

    Args:
        a: what is claimed to be fast.
        b: what it is compared with.
        pairs: how many pairs are timed, at least 1.
    """
    a(), b()
    ratios = []
    for pair in range(pairs):
        if pair % 2:
            slow = seconds_of(b)
            ratios.append(slow / seconds_of(a))
        else:
            fast = seconds_of(a)
            ratios.append(seconds_of(b) / fast)
    return ratios_of(ratios)


def machine() -> dict[str, object]:
    """Where and under which load something was measured."""
    return {
        "processor": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "has_amx": "amx_bf16" in _cpuinfo(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def ceilings() -> dict[str, float]:
    """What this machine can do at best, with the threads that are set: the least of several tries, in a second.

    Returns:
        ``gemm_float32_gflops`` of 1024 x 1024 x 1024 and ``gemm_bfloat16_gflops`` of 1024 x 1024 x 2048 products;
        ``read_gbps`` of a sum over 256 MB; ``dispatch_us`` of an addition of one number.
    """
    one = torch.ones(1)
    numbers = torch.ones(64 * 1024**2)
    dispatch = _best(lambda: [one.add(1.0) for _ in range(1000)])
    return {
        "gemm_float32_gflops": _gflops(1024, 1024, 1024, torch.float32),
        "gemm_bfloat16_gflops": _gflops(1024, 1024, 2048, torch.bfloat16),
        "read_gbps": numbers.numel() * 4 / _best(lambda: numbers.sum()) / 1e9,
        "dispatch_us": dispatch * 1e6 / 1000,
    }


def _gflops(rows: int, inner: int, columns: int, dtype: torch.dtype) -> float:
    left, right = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
    return 2 * rows * inner * columns / _best(lambda: torch.nn.functional.linear(left, right)) / 1e9


def _best(work: Callable[[], object], tries: int = 8) -> float:
    work()
    return min(seconds_of(work) for _ in range(tries))


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _processor() -> str:
    names = [line.partition(":")[2].strip() for line in _cpuinfo().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
