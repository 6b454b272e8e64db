"""Environments: small worlds with tools. What a completion did to one is its reward; what it says is not."""

from oncurve.verify.environments.calls import Call, Syntax, closing, read_call, write_call
from oncurve.verify.environments.spec import EnvironmentSpec, environment_of
from oncurve.verify.environments.stage import Answer, Scene, Stage, judge
from oncurve.verify.environments.verifier import EnvironmentSettings, EnvironmentVerifier, gold_calls

__all__ = [
    "Answer",
    "Call",
    "EnvironmentSettings",
    "EnvironmentSpec",
    "EnvironmentVerifier",
    "Scene",
    "Stage",
    "Syntax",
    "closing",
    "environment_of",
    "gold_calls",
    "judge",
    "read_call",
    "write_call",
]
