"""Run code that may hang, crash or lie about it, within limits, and say what happened. Not what is right."""

from oncurve.sandbox.command import Command
from oncurve.sandbox.endings import Ending, JailError, ProgramFaultError
from oncurve.sandbox.inside.values import encode as plain_tree
from oncurve.sandbox.jail import Jail
from oncurve.sandbox.limits import run_limits
from oncurve.sandbox.pool import JailPool, close_shared_pools, shared_pool
from oncurve.sandbox.program import Output, Program, Streams
from oncurve.sandbox.settings import SandboxSettings
from oncurve.sandbox.worker import Cause, FunctionWorker, Limits, Outcome
from oncurve.sandbox.worker_pool import WorkerPool

__all__ = [
    "Cause",
    "Command",
    "Ending",
    "FunctionWorker",
    "Jail",
    "JailError",
    "JailPool",
    "Limits",
    "Outcome",
    "Output",
    "Program",
    "ProgramFaultError",
    "SandboxSettings",
    "Streams",
    "WorkerPool",
    "close_shared_pools",
    "plain_tree",
    "run_limits",
    "shared_pool",
]
