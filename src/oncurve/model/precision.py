"""On which device and in which precision a model runs, and which attention code goes with it."""

import time
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from oncurve.types import ModelError

SMALL_MODEL_PARAMETERS = 20_000_000
"""Below this, rounding costs more than the faster arithmetic gains: float32."""

WORTH_ROUNDING = 1.5
"""How many times faster a product must be in bfloat16 for ``auto`` to choose it."""

_PRODUCT = (256, 512)
"""Rows and width of the square product that is timed, a few milliseconds in all."""
_TRIALS = 5

_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_DTYPES = (torch.float32, torch.bfloat16)
_FLAG_LINES = ("flags", "Features")  # x86, ARM


def cpu_has_bfloat16(cpuinfo: str) -> bool:
    """True when the processor multiplies bfloat16 in hardware.

    Args:
        cpuinfo: text in the format of Linux' ``/proc/cpuinfo``. Only its first list of flags is read; text without
            one (another system) gives False.
    """
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in _FLAG_LINES:
            return not _BFLOAT16_FLAGS.isdisjoint(flags.split())
    return False


def read_cpuinfo() -> str:
    """The processor's description on Linux, an empty text elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def choose_device(requested: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Resolve ``model.device``.

    Raises:
        ModelError: a GPU is asked for, and torch can use none.
    """
    has_gpu = torch.cuda.is_available()
    if requested == "cuda" and not has_gpu:
        raise ModelError(
            'model.device is "cuda", but torch can use no GPU here: there is none, its driver is missing, or torch '
            'was built for processors only. Set model.device = "auto", or install a build of torch with CUDA.'
        )
    return torch.device("cuda" if has_gpu and requested != "cpu" else "cpu")


def has_fast_bfloat16(device: torch.device) -> bool:
    """True when the device multiplies bfloat16 in hardware, and a processor is measured to gain by it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return cpu_has_bfloat16(read_cpuinfo()) and bfloat16_speedup() >= WORTH_ROUNDING


@cache
def bfloat16_speedup() -> float:
    """How many times faster this processor multiplies matrices in bfloat16 than in float32, measured once a process.

    The two take turns, and the fastest of each counts: other work on the machine only ever makes one slower.
    """
    rows, width = _PRODUCT
    pairs = {dtype: (torch.ones(rows, width, dtype=dtype), torch.ones(width, width, dtype=dtype)) for dtype in _DTYPES}
    best = dict.fromkeys(_DTYPES, float("inf"))
    with torch.inference_mode():
        for _ in range(_TRIALS + 1):  # the first also pays for choosing a kernel; it is never the fastest
            for dtype, (left, right) in pairs.items():
                started = time.perf_counter()
                torch.mm(left, right)
                best[dtype] = min(best[dtype], time.perf_counter() - started)
    return best[torch.float32] / best[torch.bfloat16]


def choose_dtype(
    requested: Literal["auto", "float32", "bfloat16"], *, num_parameters: int, has_bfloat16: bool
) -> torch.dtype:
    """Resolve ``model.dtype``: what was asked for; for auto, bfloat16 if it is fast here and the model is not small."""
    if requested == "auto":
        return torch.bfloat16 if has_bfloat16 and num_parameters >= SMALL_MODEL_PARAMETERS else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[requested]


def choose_attention(requested: Literal["auto", "sdpa", "eager"], dtype: torch.dtype, device: torch.device) -> str:
    """Resolve ``model.attention``. On a CPU the backward of fused attention is slow in bfloat16 and fast in float32."""
    if requested == "auto":
        return "eager" if dtype is torch.bfloat16 and device.type == "cpu" else "sdpa"
    return requested
