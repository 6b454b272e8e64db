"""Checks the steps of a completion, not only its answer. Every checker is fallible, and says how often it errs."""

from oncurve.verify.steps.arithmetic import ArithmeticChecker, ArithmeticSettings, ArithmeticVerifier
from oncurve.verify.steps.labelled import ErrorRates, LabelledRow, error_rates, labelled_rows
from oncurve.verify.steps.protocol import (
    Checked,
    CheckedStep,
    StepChecker,
    StepStatus,
    Unchecked,
    aggregate_steps,
)
from oncurve.verify.steps.prover import ProverChecker, ProverSettings, ProverVerifier
from oncurve.verify.steps.verifier import StepRewardSettings, StepsVerifier

__all__ = [
    "ArithmeticChecker",
    "ArithmeticSettings",
    "ArithmeticVerifier",
    "Checked",
    "CheckedStep",
    "ErrorRates",
    "LabelledRow",
    "ProverChecker",
    "ProverSettings",
    "ProverVerifier",
    "StepChecker",
    "StepRewardSettings",
    "StepStatus",
    "StepsVerifier",
    "Unchecked",
    "aggregate_steps",
    "error_rates",
    "labelled_rows",
]
