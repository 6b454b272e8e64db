"""Programs: run in a sandbox that knows no expected value, one input at a time, and judged by their outputs outside."""

from oncurve.verify.code.cases import judge_cases
from oncurve.verify.code.humaneval import humaneval_task
from oncurve.verify.code.settings import CodeComparison, CodeSettings
from oncurve.verify.code.verifier import CodeVerifier

__all__ = ["CodeComparison", "CodeSettings", "CodeVerifier", "humaneval_task", "judge_cases"]
