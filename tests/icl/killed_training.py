"""Train, and die by SIGKILL right before the n-th call of a function of the package."""

import importlib
import os
import signal
from typing import Any

from oncurve.icl.settings import LabSettings
from oncurve.icl.training import Training, train


def die_at(place: str, count: int) -> None:
    """``place`` is module:attribute.path."""
    module_name, path = place.split(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original, calls = getattr(owner, name), 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, counted)


def train_until(place: str, count: int, settings: LabSettings) -> None:
    die_at(place, count)
    with Training.create(settings, {}) as training:
        list(train(training))
