"""Verifiers by name, with the options each of them takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from oncurve.types import Settings, did_you_mean
from oncurve.verify.answer import AnswerSettings, AnswerVerifier
from oncurve.verify.code import CodeSettings, CodeVerifier
from oncurve.verify.countdown import CountdownSettings, CountdownVerifier
from oncurve.verify.environments import EnvironmentSettings, EnvironmentVerifier
from oncurve.verify.formats.json_format import JsonSettings, JsonVerifier
from oncurve.verify.formats.tool_calls import ToolCallSettings, ToolCallVerifier
from oncurve.verify.formats.xml_format import XmlSettings, XmlVerifier
from oncurve.verify.items import Verifier
from oncurve.verify.judges import REWARD_MODEL, EndpointJudge, JudgeSettings, RewardModelSettings, needs_torch
from oncurve.verify.length import LengthSettings, LengthVerifier
from oncurve.verify.rules import RulesSettings, RulesVerifier
from oncurve.verify.steps import ArithmeticSettings, ArithmeticVerifier, ProverSettings, ProverVerifier
from oncurve.verify.tags import TagsSettings, TagsVerifier

Builders = Mapping[str, Callable[[Any], Verifier]]
NO_BUILDERS: Builders = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Entry:
    settings: type[Settings]
    build: Callable[[Any], Verifier]


_VERIFIERS: Mapping[str, _Entry] = {
    AnswerVerifier.name: _Entry(AnswerSettings, AnswerVerifier),
    ArithmeticVerifier.name: _Entry(ArithmeticSettings, ArithmeticVerifier),
    CodeVerifier.name: _Entry(CodeSettings, CodeVerifier),
    CountdownVerifier.name: _Entry(CountdownSettings, CountdownVerifier),
    JsonVerifier.name: _Entry(JsonSettings, JsonVerifier),
    EnvironmentVerifier.name: _Entry(EnvironmentSettings, EnvironmentVerifier),
    EndpointJudge.name: _Entry(JudgeSettings, EndpointJudge),
    LengthVerifier.name: _Entry(LengthSettings, LengthVerifier),
    ProverVerifier.name: _Entry(ProverSettings, ProverVerifier),
    REWARD_MODEL: _Entry(RewardModelSettings, needs_torch),
    RulesVerifier.name: _Entry(RulesSettings, RulesVerifier),
    TagsVerifier.name: _Entry(TagsSettings, TagsVerifier),
    ToolCallVerifier.name: _Entry(ToolCallSettings, ToolCallVerifier),
    XmlVerifier.name: _Entry(XmlSettings, XmlVerifier),
}


def verifier_names() -> tuple[str, ...]:
    """Names of the built-in verifiers, sorted."""
    return tuple(sorted(_VERIFIERS))


def read_options(name: str, options: Mapping[str, Any]) -> Settings:
    """Check the options of a verifier.

    Raises:
        ValueError: the verifier or an option is unknown (the nearest name is given), or a value is out of range.
    """
    if name not in _VERIFIERS:
        raise ValueError(
            f"unknown verifier {name!r}.{did_you_mean(name, verifier_names())} "
            f"Known: {', '.join(verifier_names())}, or a function of yours as path/to/file.py:function."
        )
    return read_settings(_VERIFIERS[name].settings, options, f"verifier {name!r}")


def read_settings(settings: type[Settings], options: Mapping[str, Any], owner: str) -> Settings:
    """Build settings from plain options, naming the nearest known option for an unknown one."""
    for option in options:
        if option not in settings.model_fields:
            raise ValueError(
                f"unknown option {option!r} of {owner}.{did_you_mean(option, settings.model_fields)} "
                f"Options: {', '.join(settings.model_fields)}."
            )
    return settings.model_validate(dict(options))


def build_verifier(name: str, options: Mapping[str, Any], builders: Builders = NO_BUILDERS) -> Verifier:
    """Make a built-in verifier.

    Args:
        name: which one.
        options: as its settings take them.
        builders: what makes the verifiers that this package only knows the settings of, by name.

    Raises:
        ValueError: as ``read_options`` does.
    """
    settings = read_options(name, options)
    return builders.get(name, _VERIFIERS[name].build)(settings)
