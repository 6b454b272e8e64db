"""Plain data there and back: types kept, subclasses reduced, everything else refused."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.sandbox.inside import values

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(HASHABLE, inner, max_size=4) | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=12,
)


def there_and_back(value: Any) -> Any:
    return values.decode(json.loads(json.dumps(values.encode(value))))


def kinds(value: Any) -> Any:
    """The types of a value and of its parts."""
    if isinstance(value, dict):
        return dict, sorted((repr(kinds(k)), repr(kinds(v))) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(kinds(v)) for v in value)
    return type(value), [kinds(v) for v in value] if isinstance(value, list | tuple) else None


@given(VALUES)
def test_a_value_comes_back_with_its_types(value: Any):
    back = there_and_back(value)
    assert back == value
    assert kinds(back) == kinds(value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -0.0, "\ud800", 2**5000, -(2**63), 2**63, range(9, -5, -2)]
)
def test_what_json_cannot_say_comes_back(value: Any):
    back = there_and_back(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value) if not isinstance(value, int) else back == value


def test_an_integer_of_a_word_is_a_json_number_and_a_longer_one_is_hexadecimal():
    assert values.encode(2**63 - 1) == 2**63 - 1
    assert values.encode(2**63) == {"i": "0x8000000000000000"}


class Colour(IntEnum):
    RED = 3


class Loud(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "loud"


class Empty(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([1, 2, 3])


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(int, {1: 2}), {1: 2}),
        (OrderedDict([(1, 2)]), {1: 2}),
        (Colour.RED, 3),
        (Loud("said"), "said"),
        (Empty(), []),
    ],
)
def test_a_subclass_is_sent_as_its_base(value: Any, plain: Any):
    back = there_and_back(value)
    assert back == plain
    assert type(back) is type(plain)


def test_a_named_tuple_keeps_its_names_and_is_a_tuple():
    point = there_and_back(namedtuple("Point", "x y")(1, 2))
    assert point == (1, 2)
    assert point.y == 2
    with pytest.raises(AttributeError):
        point.z  # noqa: B018


@pytest.mark.parametrize("value", [object(), len, (n for n in ()), {1: {2: object()}}, type, iter([])])
def test_what_is_not_plain_is_refused_without_handles(value: Any):
    with pytest.raises(values.NotPlainError):
        values.encode(value)


def test_cycles_and_depth_are_refused():
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 0
    for _ in range(values.MAX_DEPTH + 2):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(ValueError, match="cyclic"):
            values.encode(value)
    assert there_and_back(deep[0][0]) == deep[0][0]


def test_what_shares_its_parts_is_refused_before_it_explodes():
    shared: Any = [0]
    for _ in range(60):
        shared = [shared, shared]  # 2**60 parts, when followed
    with pytest.raises(ValueError, match="too large"):
        values.encode(shared)


class Liar:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return bool


def test_an_object_that_lies_about_its_class_is_no_bool():
    with pytest.raises(TypeError):
        values.encode(Liar())


def test_handles_stand_for_what_is_not_plain():
    kept: list[Any] = []

    def wrap(value: Any) -> dict[str, Any]:
        kept.append(value)
        return {"h": len(kept) - 1}

    tree = values.encode([1, len], wrap)
    assert tree == [1, {"h": 0}]
    assert values.decode(tree, lambda place: kept[place]) == [1, len]
    with pytest.raises(ValueError, match="not a value"):
        values.decode(tree)


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"t": [], "s": []},
        {"unknown": 1},
        {"i": "0xzz"},
        {"i": 5},
        {"f": "1.5"},
        {"t": 5},
        {"d": [[1]]},
        {"d": [[[1], 2]]},
        {"s": [[1]]},
        {"c": [1]},
        {"q": ["0x1", "0x0"]},
        {"m": "x"},
        {"n": [["a"]]},
        {"r": ["0x1", "0x1", "0x0"]},
    ],
)
def test_a_tree_that_no_encoder_writes_is_refused(tree: Any):
    with pytest.raises(ValueError):
        values.decode(tree)


def test_a_very_deep_tree_is_refused():
    tree: Any = 0
    for _ in range(900):
        tree = [tree]
    with pytest.raises(ValueError, match="too deep"):
        values.decode(tree)


def test_exact_numbers_survive():
    back = there_and_back([Fraction(1, 3), Decimal("0.10"), math.inf])
    assert back == [Fraction(1, 3), Decimal("0.10"), math.inf]
    assert str(back[1]) == "0.10"
