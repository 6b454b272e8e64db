"""English words around arithmetic: which calculate, which relate, and which change what stands beside them."""

OPERATORS = {
    "plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/", "over": "/", "x": "*",
    "added to": "+",
}  # fmt: skip

RELATIONS = {
    "equals": "=", "equal": "=", "is equal to": "=", "are equal to": "=", "equal to": "=", "is": "=", "are": "=",
    "makes": "=", "gives": "=", "yields": "=",
}  # fmt: skip

BINDS_BEFORE = frozenset((
    "of", "than", "by", "and", "between", "from", "to", "less", "more", "half", "twice", "double", "triple", "if",
    "suppose", "assume", "not", "maybe", "perhaps", "whether", "unless", "sqrt", "root", "log", "ln", "sin", "cos",
    "tan", "mod", "pi", "abs", "cannot", "never", "isn't", "say", "imagine", "sum", "difference", "product", "quotient",
    "ratio", "subtract", "add", "multiply", "divide", "negative", "minus", "wrong", "incorrectly", "with", "plus",
    "times", "square", "cube", "average", "mean", "gcd", "lcm", "max", "min", "base",
))  # fmt: skip
"""In front of an expression: it may belong to it, or the equality is no claim."""

BEFORE_A_NUMBER = frozenset((
    "so", "then", "thus", "therefore", "hence", "is", "since", "because", "now", "also", "that", "means", "have",
    "know", "get", "gives", "but", "first", "next", "finally", "where", "as", "indeed", "clearly", "ok", "okay", "well",
    "yes",
))  # fmt: skip
"""In front of a bare number: the equality begins behind them. "3 and 4 = 7" is not about 4."""

BINDS_AFTER = frozenset((
    "more", "less", "fewer", "times", "of", "percent", "squared", "cubed", "factorial", "dozen", "hundred", "thousand",
    "million", "billion", "over", "mod", "x", "plus", "minus", "pi", "half", "choose", "remainder", "r", "degrees",
    "th", "st", "nd", "rd", "to",
))  # fmt: skip
"""Behind the right side: it does not end there."""

NO_UNITS = BINDS_AFTER | BINDS_BEFORE | {"or", "is", "are", "the", "in", "on", "at", "for", "with", "e", "i", "so"}
"""Words between a number and an operator that name no unit."""

DENIALS = frozenset(("wrong", "incorrect", "false", "not", "isn't", "mistake", "untrue", "nope", "wait", "no"))
