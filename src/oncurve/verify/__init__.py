"""The reward: judge completions, compose components, check golds. Nothing here imports torch."""

from oncurve.verify.answer import AnswerSettings, AnswerVerifier
from oncurve.verify.compose import compose_rewards, gate_reward
from oncurve.verify.countdown import CountdownSettings, CountdownVerifier
from oncurve.verify.formats.json_format import JsonSettings, JsonVerifier
from oncurve.verify.formats.tool_calls import ToolCallSettings, ToolCallVerifier
from oncurve.verify.formats.xml_format import XmlSettings, XmlVerifier
from oncurve.verify.golds import GoldProblem, check_golds
from oncurve.verify.items import Item, StatesGold, Verifier
from oncurve.verify.length import LengthSettings, LengthVerifier
from oncurve.verify.length_shaping import LengthShapingSettings, length_values
from oncurve.verify.registry import build_verifier, verifier_names
from oncurve.verify.reward_function import RewardFunction, RewardFunctionSettings
from oncurve.verify.rewards import TASK, ComponentSettings, RewardSettings
from oncurve.verify.scorer import Scorer, num_duplicates
from oncurve.verify.tags import TagsSettings, TagsVerifier

__all__ = [
    "TASK",
    "AnswerSettings",
    "AnswerVerifier",
    "ComponentSettings",
    "CountdownSettings",
    "CountdownVerifier",
    "GoldProblem",
    "Item",
    "JsonSettings",
    "JsonVerifier",
    "LengthSettings",
    "LengthShapingSettings",
    "LengthVerifier",
    "RewardFunction",
    "RewardFunctionSettings",
    "RewardSettings",
    "Scorer",
    "StatesGold",
    "TagsSettings",
    "TagsVerifier",
    "ToolCallSettings",
    "ToolCallVerifier",
    "Verifier",
    "XmlSettings",
    "XmlVerifier",
    "build_verifier",
    "check_golds",
    "compose_rewards",
    "gate_reward",
    "length_values",
    "num_duplicates",
    "verifier_names",
]
