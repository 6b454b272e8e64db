"""Measure a frozen policy: estimators, their uncertainty, and the examination on held-out tasks."""

from oncurve.evaluate.policy import Evaluation, EvaluationSettings, evaluate_policy

__all__ = ["Evaluation", "EvaluationSettings", "evaluate_policy"]
