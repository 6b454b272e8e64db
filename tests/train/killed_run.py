"""A real run that ends itself with SIGKILL at a chosen call: ``killed_run.py module:name COUNT [CONFIG] WORDS...``."""

import importlib
import os
import signal
import sys
from functools import reduce

from oncurve.cli.words import split_words
from oncurve.config import load_config
from oncurve.train import Session, train


def kill_at_call(target: str, count: int) -> None:
    """Replace the target by a wrapper that dies on its ``count``-th call, before the call does anything."""
    module_name, _, path = target.partition(":")
    *parents, name = path.split(".")
    owner = reduce(getattr, parents, importlib.import_module(module_name))
    original = getattr(owner, name)
    calls = 0

    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, wrapper)


if __name__ == "__main__":
    kill_at_call(sys.argv[1], int(sys.argv[2]))
    path, words = split_words(sys.argv[3:])
    with Session.create(load_config(path, words)) as session:
        for event in train(session):
            print(event, flush=True)
