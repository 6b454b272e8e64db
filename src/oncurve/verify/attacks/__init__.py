"""Completions that try to be paid for nothing, and honest ones beside them: what an audit asks a reward function."""

from oncurve.verify.attacks.attack import Attack, attack_item, same_value
from oncurve.verify.attacks.cheap import Cheap, cheap_completions
from oncurve.verify.attacks.corpus import corpus_attacks
from oncurve.verify.attacks.metamorphic import metamorphic_attacks
from oncurve.verify.attacks.programs import Mutant, mutants, program_attacks
from oncurve.verify.attacks.wrappers import WRAPPERS, Wrapper, stated_wrappers

__all__ = [
    "WRAPPERS",
    "Attack",
    "Cheap",
    "Mutant",
    "Wrapper",
    "attack_item",
    "cheap_completions",
    "corpus_attacks",
    "metamorphic_attacks",
    "mutants",
    "program_attacks",
    "same_value",
    "stated_wrappers",
]
