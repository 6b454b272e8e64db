"""Run code that may hang, crash or lie about it, within limits, and say what happened. Not what is right."""

from oncurve.sandbox.command import Command
from oncurve.sandbox.worker import Cause, FunctionWorker, Limits, Outcome

__all__ = ["Cause", "Command", "FunctionWorker", "Limits", "Outcome"]
