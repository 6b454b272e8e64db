"""The door: argv in, printing and exit codes out. Everything heavy is imported inside the commands."""

import os

# A tensor thread that spins while it waits takes the core from the one it waits for; one that sleeps at once has to be
# woken for every small operation. So it spins for about as long as waking takes. Must be set before torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# Advice to programmers, not to users of this command.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from oncurve.cli.entry import main

__all__ = ["main"]
