"""Tasks that ask for a program: the problems of HumanEval, and small functions without number."""

from oncurve.tasks.programs.functions import MINI_CODE
from oncurve.tasks.programs.human_eval import HUMAN_EVAL, humaneval_meta

PROGRAM_SOURCES = (MINI_CODE, HUMAN_EVAL)

__all__ = ["HUMAN_EVAL", "MINI_CODE", "PROGRAM_SOURCES", "humaneval_meta"]
