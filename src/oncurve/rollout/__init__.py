"""Rollouts: an engine samples completions, a judge scores them, groups come out."""

from oncurve.rollout.collect import Collector, Rollout
from oncurve.rollout.dialogue import encode_episode
from oncurve.rollout.engine import Announce, Engine, Request
from oncurve.rollout.judging import Judge, Judging, unit_of
from oncurve.rollout.local import local_engine
from oncurve.rollout.multi_turn import ToolEngine, ToolSettings
from oncurve.rollout.resample import collect_informative, is_informative
from oncurve.rollout.settings import RolloutSettings
from oncurve.rollout.torch_engine import TorchEngine

__all__ = [
    "Announce",
    "Collector",
    "Engine",
    "Judge",
    "Judging",
    "Request",
    "Rollout",
    "RolloutSettings",
    "ToolEngine",
    "ToolSettings",
    "TorchEngine",
    "collect_informative",
    "encode_episode",
    "is_informative",
    "local_engine",
    "unit_of",
]
