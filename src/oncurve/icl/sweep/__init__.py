"""Sizes of networks against classes of functions: does a larger one learn more, and does it beat what was made for it?

Source: Garg et al., arXiv:2208.01066, sections 5 and 6.
"""

from oncurve.icl.sweep.grid import REDUCED, SIZES, SweepClass, SweepSettings, size_name
from oncurve.icl.sweep.result import BaselineCurve, Cell, Spread, SweepResult
from oncurve.icl.sweep.run import SWEEP_FILE, run_sweep

__all__ = [
    "REDUCED",
    "SIZES",
    "SWEEP_FILE",
    "BaselineCurve",
    "Cell",
    "Spread",
    "SweepClass",
    "SweepResult",
    "SweepSettings",
    "run_sweep",
    "size_name",
]
