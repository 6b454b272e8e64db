"""What a run must know of the machine to be repeated on it."""

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from oncurve.model.precision import bfloat16_speedup
from oncurve.model.threads import available_cores
from oncurve.sandbox.own_memory import peak_bytes

PACKAGES = ("oncurve", "torch", "transformers", "tokenizers", "peft", "numpy")


def describe_environment(*, num_threads: int, weights: str, data: str | None = None) -> dict[str, Any]:
    """Versions and machine, for ``environment.json``.

    Args:
        num_threads: threads of tensor work.
        weights: fingerprint of the starting weights.
        data: fingerprint of given pairs or examples; None without.
    """
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "bfloat16_speedup": round(bfloat16_speedup(), 2),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cores": available_cores(),
        "threads": num_threads,
        "packages": {name: _version(name) for name in PACKAGES},
        "starting_weights": weights,
        **({} if data is None else {"data": data}),
    }


def memory_metrics() -> dict[str, float]:
    """``memory/peak_bytes`` and ``memory/peak_gpu_bytes``, the most this process has held so far, where there is such
    memory and the system says how much."""
    gpu = {"memory/peak_gpu_bytes": float(torch.cuda.max_memory_allocated())} if torch.cuda.is_available() else {}
    peak = peak_bytes()
    return gpu if peak is None else {"memory/peak_bytes": float(peak), **gpu}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
