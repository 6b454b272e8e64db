"""Names that the grammar knows."""


def word_set(words: str) -> frozenset[str]:
    """The words of a text, without order."""
    return frozenset(words.split())


FUNCTIONS = {
    name: name
    for name in word_set(
        "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth arcsinh arccosh "
        "arctanh ln log lg exp sqrt cbrt sgn max min gcd lcm Re Im arg floor ceil det tr"
    )
}
FUNCTIONS |= {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "sign": "sgn", "csch": "csch", "sech": "sech"}
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc"}
INVERSES |= {"sinh": "arcsinh", "cosh": "arccosh", "tanh": "arctanh"}
CONSTANTS = {"pi": ("const", "pi"), "infinity": ("const", "inf"), "oo": ("const", "inf"), "infty": ("const", "inf")}
CALLS = frozenset("fghFGHWPQRTvu")
"""Letters that are read as functions when a parenthesis with one symbol or number follows."""
SURE_CALLS = frozenset("fgh")
"""Letters that are read as functions before any parenthesis."""
GREEK = word_set(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi "
    "psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar angle triangle"
)
ACCENTS = frozenset(
    [
        "\\overline",
        "\\bar",
        "\\vec",
        "\\hat",
        "\\tilde",
        "\\widehat",
        "\\overrightarrow",
        "\\dot",
        "\\overparen",
        "\\widetilde",
    ]
)
SPACES = {"R": "R", "Z": "Z", "N": "N", "Q": "Q", "C": "C"}
RELATIONS = frozenset(["=", "<", ">", "\\le", "\\ge", "\\ne", "\\approx", "\\in", "\\notin", "\\equiv"])
BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "sixteen": 16, "bin": 2, "binary": 2, "oct": 8, "dec": 10, "hex": 16,
}  # fmt: skip
PERCENT = frozenset(["%", "\\%", "percent", "percentage", "pct", "percents"])
NO_UNIT = word_set(
    "or and not but if maybe perhaps possibly either neither nor except minus plus times wrong incorrect "
    "false than less more least most between no isnt unknown error was is are were am would could should "
    "might may otherwise instead actually wait then else unless without any all some correct right true "
    "answer solution answers because since so thus therefore hence when where which what equals equal to "
    "versus vs though although however"
)
"""Words that never belong to a unit or a counted thing: a hedge, a negation or a sentence is no unit."""
SHORT_WORDS = word_set(
    "the The is are was has for of get not yes Yes no No its all any but can may one two six ten odd out per "
    "set red sum Sum men boy old day who how why"
)
"""Words of two or three letters that are never products of variables."""
