"""Judges for what cannot be verified. All of them are fallible, and are probed for it."""

from oncurve.verify.judges.client import ChatClient, NoReplyError
from oncurve.verify.judges.endpoint import EndpointJudge
from oncurve.verify.judges.probes import (
    JUDGE_PROBE,
    FallibleJudge,
    Probe,
    ProbeReport,
    probe_components,
    probe_judge,
    probe_rows,
)
from oncurve.verify.judges.reward_model import REWARD_MODEL, RewardModelSettings, needs_torch
from oncurve.verify.judges.settings import EndpointSettings, JudgeSettings

__all__ = [
    "JUDGE_PROBE",
    "REWARD_MODEL",
    "ChatClient",
    "EndpointJudge",
    "EndpointSettings",
    "FallibleJudge",
    "JudgeSettings",
    "NoReplyError",
    "Probe",
    "ProbeReport",
    "RewardModelSettings",
    "needs_torch",
    "probe_components",
    "probe_judge",
    "probe_rows",
]
