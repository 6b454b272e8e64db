"""How tensor work is spread over the cores of the machine."""

import os

import torch


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def use_threads(wanted: int) -> int:
    """Do tensor work on so many threads, or for 0 on every core this process may use; return their number.

    The number changes the order of sums, so it belongs to a run's identity.
    """
    num_threads = wanted or available_cores()
    torch.set_num_threads(num_threads)
    return num_threads
