"""Computes with a printed formula alone: a second opinion on what its text says, in plain loops over ragged lists.

Nothing here knows the package. ``Text`` parses the lines, ``World`` holds the numbers and evaluates. A symbol carries
its indices: ᵢ the completion, ₜ the token, ₖ the reward component. ``sg`` reads the log-probs of the base point, so a
finite difference moves around it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import comb, exp, floor, log, sqrt
from typing import Any

Node = tuple[Any, ...]

_TOKEN = re.compile(
    r"\s*(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|\s*(?P<sum>Σ_\{i∈g\}|Σg|Σ[ᵢₜₖ])"
    r"|\s*(?P<name>[^\W\d_](?:\w|\u0303)*)|\s*(?P<sign>[−+·/^()\[\],=<>≤≥])"
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "≤": lambda a, b: a <= b,
    "≥": lambda a, b: a >= b,
}
_PLAIN: dict[str, Callable[..., float]] = {
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "abs": abs,
    "min": min,
    "max": max,
    "floor": floor,
    "comb": lambda n, k: comb(round(n), round(k)),
    "sigmoid": lambda x: 1 / (1 + exp(-x)),
    "clip": lambda x, low, high: min(max(x, low), high),
}
_REDUCER = re.compile(r"(mean|sum|max|min|second|count|quantile)_(t|g|all|groups|tokens)")
_DEFINITION = re.compile(r"(\S+?)(\(x\))? = (.+)")


def tokens_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of an expression, then ("end", "")."""
    place = 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"cannot read {text[place:]!r} in {text!r}")
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]
        place = found.end()
    yield "end", ""


class Parser:
    """Recursive descent, loosest binding first: if/else, or, and, comparison, + −, · /, sum and minus, ^."""

    def __init__(self, text: str) -> None:
        self.tokens = list(tokens_of(text))
        self.place = 0

    def whole(self) -> Node:
        node = self.choice()
        if self.tokens[self.place][0] != "end":
            raise ValueError(f"left over: {self.tokens[self.place :]}")
        return node

    def take(self, *texts: str) -> str | None:
        text = self.tokens[self.place][1]
        if text not in texts or not text:
            return None
        self.place += 1
        return text

    def need(self, text: str) -> None:
        if not self.take(text):
            raise ValueError(f"expected {text!r} before {self.tokens[self.place :]}")

    def choice(self) -> Node:
        node = self.either()
        if not self.take("if"):
            return node
        condition = self.either()
        self.need("else")
        return ("if", condition, node, self.choice())

    def either(self) -> Node:
        node = self.both()
        while self.take("or"):
            node = ("or", node, self.both())
        return node

    def both(self) -> Node:
        node = self.comparison()
        while self.take("and"):
            node = ("and", node, self.comparison())
        return node

    def comparison(self) -> Node:
        node = self.addition()
        sign = self.take(*_COMPARE)
        return ("compare", sign, node, self.addition()) if sign else node

    def addition(self) -> Node:
        node = self.product()
        while sign := self.take("+", "−"):
            node = (sign, node, self.product())
        return node

    def product(self) -> Node:
        node = self.prefix()
        while sign := self.take("·", "/"):
            node = (sign, node, self.prefix())
        return node

    def prefix(self) -> Node:
        if self.take("−"):
            return ("negative", self.prefix())
        kind, text = self.tokens[self.place]
        if kind == "sum":
            self.place += 1
            return ("Σ", text[1:], self.product())
        node = self.atom()
        return ("^", node, self.prefix()) if self.take("^") else node

    def atom(self) -> Node:
        if opening := self.take("(", "["):
            node = self.choice()
            self.need({"(": ")", "[": "]"}[opening])
            return node
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return ("number", float(text))
        if kind != "name":
            raise ValueError(f"expected a number, a name or a bracket at {self.tokens[self.place - 1 :]}")
        return ("call", text, *self.arguments()) if self.take("(") else ("name", text)

    def arguments(self) -> list[Node]:
        found = [self.choice()]
        while self.take(","):
            found.append(self.choice())
        self.need(")")
        return found


def substituted(node: Any, argument: Node) -> Any:
    """The body of a function with its x replaced, unevaluated: x may mean another completion inside a sum."""
    if node == ("name", "x"):
        return argument
    return tuple(substituted(part, argument) for part in node) if isinstance(node, tuple) else node


class Text:
    """The definitions of a printed formula, functions already put in."""

    def __init__(self, text: str) -> None:
        self.lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("    "):
                self.lines[-1] += " " + line.strip()
            else:
                self.lines.append(line.strip())
        bodies = [line.split(" — ")[0] for line in self.lines]
        found = [match for match in map(_DEFINITION.fullmatch, bodies) if match]
        self.functions = {match[1]: Parser(match[3]).whole() for match in found if match[2]}
        self.symbols = {match[1]: self.expanded(Parser(match[3]).whole()) for match in found if not match[2]}

    def expanded(self, node: Any) -> Any:
        if not isinstance(node, tuple):
            return node
        node = tuple(self.expanded(part) for part in node)
        if node[0] == "call" and node[1] in self.functions:
            return self.expanded(substituted(self.functions[node[1]], node[2]))
        return node

    def names(self, node: Any) -> set[str]:
        """Symbols that an expression mentions."""
        if not isinstance(node, tuple):
            return set()
        if node[0] == "name":
            return {node[1]}
        return set().union(*map(self.names, node))

    def reachable(self) -> set[str]:
        """Symbols behind L, those without a definition among them."""
        seen: set[str] = set()
        waiting = {"L"}
        while waiting:
            name = waiting.pop()
            seen.add(name)
            waiting |= self.names(self.symbols.get(name)) - seen
        return seen


@dataclass(frozen=True)
class At:
    """Where an expression is evaluated."""

    i: int = -1
    t: int = -1
    k: int = -1
    g: int = -1
    subset: tuple[int, ...] = ()
    is_frozen: bool = False


@dataclass
class World:
    """The numbers of one rollout, and the evaluator. Places count from 0; what is not defined is looked up."""

    text: Text
    given: dict[str, Any]
    """By symbol: a number, a list by completion, or by completion and token; for ₖᵢ by component and completion."""
    members: list[list[int]]
    """Completions of each group of the rollout."""
    is_scored: list[bool]
    is_in_step: list[bool]
    """By group: takes part in the optimiser step."""
    base: dict[str, Any] = field(default_factory=dict)
    """What ``sg`` reads in place of ``given``."""
    cache: dict[Any, float] = field(default_factory=dict)

    def value(self, symbol: str, *, i: int = -1, t: int = -1) -> float:
        return self.of(("name", symbol), At(i=i, t=t, g=self.group_of(i) if i >= 0 else -1))

    def group_of(self, i: int) -> int:
        return next(g for g, group in enumerate(self.members) if i in group)

    def at(self, place: At, i: int) -> At:
        return replace(place, i=i, g=self.group_of(i))

    def of(self, node: Node, at: At) -> float:
        match node:
            case ("number", value):
                return float(value)
            case ("name", symbol):
                return self.symbol(symbol, at)
            case ("negative", inner):
                return -self.of(inner, at)
            case ("if", condition, yes, no):
                return self.of(yes if self.of(condition, at) else no, at)
            case ("or", left, right):
                return float(bool(self.of(left, at)) or bool(self.of(right, at)))
            case ("and", left, right):
                return float(bool(self.of(left, at)) and bool(self.of(right, at)))
            case ("compare", sign, left, right):
                return float(_COMPARE[sign](self.of(left, at), self.of(right, at)))
            case ("Σ", which, body):
                return sum(self.of(body, place) for place in self.places(which, at))
            case ("call", name, *arguments):
                return self.call(name, arguments, at)
            case (sign, left, right):
                return self.binary(sign, self.of(left, at), self.of(right, at))
        raise ValueError(f"cannot evaluate {node}")

    @staticmethod
    def binary(sign: str, left: float, right: float) -> float:
        match sign:
            case "+":
                return left + right
            case "−":
                return left - right
            case "·":
                return left * right
            case "/":
                return left / right
        return float(left**right)

    def symbol(self, symbol: str, at: At) -> float:
        if symbol == "t":
            return at.t + 1
        if match := _REDUCER.fullmatch(symbol):  # count_g and the like stand alone
            return float(len(list(self.range(match[2], at))))
        indices = tuple(getattr(at, {"ₖ": "k", "ᵢ": "i", "ₜ": "t"}[mark]) for mark in symbol if mark in "ₖᵢₜ")
        if symbol in self.given:
            found = (self.base if at.is_frozen else self.given).get(symbol, self.given[symbol])
            for index in indices:
                found = found[index]
            return float(found)
        key = (symbol, indices, at.is_frozen)
        if key not in self.cache:
            is_unscored = symbol[0] in "Aa" and not self.is_scored[at.i]
            self.cache[key] = 0.0 if is_unscored else self.of(self.text.symbols[symbol], at)
        return self.cache[key]

    def places(self, which: str, at: At) -> Iterator[At]:
        """Where a printed Σ looks; completions without trained tokens add nothing."""
        lengths = self.given["Lᵢ"]
        match which:
            case "g":
                for g, group in enumerate(self.members):
                    if self.is_in_step[g] and any(lengths[i] for i in group):
                        yield replace(at, g=g)
            case "ᵢ":
                yield from (self.at(at, i) for i, length in enumerate(lengths) if length)
            case "_{i∈g}":
                yield from (self.at(at, i) for i in self.members[at.g] if lengths[i])
            case "ₜ":
                yield from (replace(at, t=t) for t in range(lengths[at.i]))
            case "ₖ":
                yield from (replace(at, k=k) for k in range(len(self.given["wₖ"])))

    def range(self, scope: str, at: At) -> Iterator[At]:
        """What a mean or sum runs over."""
        match scope:
            case "t":
                yield from (replace(at, t=t) for t in range(self.given["nᵢ"][at.i]))
            case "g":
                yield from (self.at(at, i) for i in self.members[at.g] if self.is_scored[i])
            case "all":
                yield from (self.at(at, i) for i, is_scored in enumerate(self.is_scored) if is_scored)
            case "groups":
                for group in self.members:
                    scored = [i for i in group if self.is_scored[i]]
                    yield from (self.at(at, i) for i in scored[:1])
            case "tokens":
                for i, length in enumerate(self.given["Lᵢ"]):
                    yield from (replace(self.at(at, i), t=t) for t in range(length))

    def call(self, name: str, arguments: list[Node], at: At) -> float:
        if name == "sg":
            return self.of(arguments[0], replace(at, is_frozen=True))
        if name == "next":
            is_last = at.t + 1 == self.given["nᵢ"][at.i]
            return 0.0 if is_last else self.of(arguments[0], replace(at, t=at.t + 1))
        if name == "sum_subsets":
            size, siblings = round(self.of(arguments[0], at)), [place.i for place in self.range("g", at)]
            subsets = (subset for subset in combinations(siblings, size) if at.i in subset)
            return sum(self.of(arguments[1], replace(at, subset=subset)) for subset in subsets)
        if name in ("max_S", "max_rest"):
            chosen = [i for i in at.subset if name == "max_S" or i != at.i]
            return max(self.of(arguments[0], replace(self.at(at, i), subset=())) for i in chosen)
        if match := _REDUCER.fullmatch(name):
            return self.reduced(match[1], match[2], arguments, at)
        return float(_PLAIN[name](*(self.of(argument, at) for argument in arguments)))

    def reduced(self, how: str, scope: str, arguments: list[Node], at: At) -> float:
        own = {"t": at.i, "g": at.g}.get(scope, -1)
        key = (how, scope, id(arguments[0]), own, at.k, at.is_frozen)
        if key not in self.cache:
            values = [self.of(arguments[0], place) for place in self.range(scope, at)]
            self.cache[key] = self.summary(how, values, [self.of(extra, at) for extra in arguments[1:]])
        return self.cache[key]

    @staticmethod
    def summary(how: str, values: list[float], extra: list[float]) -> float:
        match how:
            case "mean":
                return sum(values) / len(values)
            case "sum":
                return sum(values)
            case "max" | "min":
                return max(values) if how == "max" else min(values)
            case "second":
                return sorted(values)[-2]
        place = extra[0] * (len(values) - 1)  # quantile, linear between neighbours
        ordered, below = sorted(values), floor(round(place, 9))
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])
