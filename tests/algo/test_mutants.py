"""The list of planted mutants fits the code, names tests that exist, and is the one on the page."""

import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    found = spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


MUTANTS = script()


@pytest.mark.parametrize("mutant", MUTANTS.MUTANTS, ids=lambda mutant: f"{mutant.family}: {mutant.new[:40]}")
def test_each_mutant_can_be_planted_and_names_a_test(mutant) -> None:  # type: ignore[no-untyped-def]
    source = (ROOT / "src" / "oncurve" / mutant.file).read_text(encoding="utf-8")
    assert MUTANTS.mutated(mutant, source) != source
    file, _, name = mutant.test.partition("::")
    tests = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^def {name.partition('[')[0]}\(", tests, flags=re.MULTILINE)


def test_at_least_eight_a_family() -> None:
    families = Counter(mutant.family for mutant in MUTANTS.MUTANTS)
    assert len(families) == 10
    assert min(families.values()) >= 8


def test_the_page_lists_them_all() -> None:
    assert MUTANTS.PAGE.read_text(encoding="utf-8").endswith(f"{MUTANTS.table(MUTANTS.MUTANTS)}\n")
