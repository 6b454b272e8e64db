"""Undo typography: one plain spelling for the many ways in which the same mathematics is set."""

import re
import unicodedata

_VULGAR = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5)}
_VULGAR |= {"⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8), "⅐": (1, 7)}
_VULGAR |= {"⅑": (1, 9), "⅒": (1, 10)}
_SUPERSCRIPTS, _SUBSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢ"
_COMMANDS = {
    "≤": "\\le", "≦": "\\le", "⩽": "\\le", "≥": "\\ge", "≧": "\\ge", "⩾": "\\ge", "≠": "\\ne", "≈": "\\approx",
    "∪": "\\cup", "∩": "\\cap", "∞": "\\infty", "π": "\\pi", "√": "\\sqrt", "∈": "\\in", "∅": "\\emptyset",
    "±": "\\pm", "∓": "\\mp", "∖": "\\setminus", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}",
    "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}", "…": "\\ldots", "⋯": "\\ldots", "∑": "\\sum", "∫": "\\int",
    "∏": "\\prod", "⟨": "\\langle", "⟩": "\\rangle", "〈": "\\langle", "〉": "\\rangle", "≡": "\\equiv",
    "°": "^\\circ", "º": "^\\circ", "℃": "^\\circ C", "∛": "\\sqrt[3]", "∧": "\\wedge", "∨": "\\vee", "→": "\\to",
    "α": "\\alpha", "β": "\\beta", "γ": "\\gamma", "δ": "\\delta", "ε": "\\epsilon", "θ": "\\theta",
    "λ": "\\lambda", "μ": "\\mu", "φ": "\\phi", "ϕ": "\\phi", "ω": "\\omega", "ρ": "\\rho", "σ": "\\sigma",
    "τ": "\\tau", "ϵ": "\\epsilon", "Δ": "\\Delta", "Ω": "\\Omega", "∠": "\\angle",
}  # fmt: skip
_PLAIN: dict[int, str] = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full-width ASCII
_PLAIN |= {ord(c): "-" for c in "−‐‑﹣"} | {ord(c): "*" for c in "×·⋅∙∗•"} | {ord(c): "/" for c in "÷∕⁄"}
_PLAIN |= dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f\u2061\u2062\u2063\u2064"), "")
# Marks of direction that leave the order of digits alone. An override (U+202E) stays: what it shows is another number.
_PLAIN |= dict.fromkeys(map(ord, "\u202a\u202c\u2066\u2068\u2069✓✔✅"), "")
_PLAIN |= dict.fromkeys(map(ord, "\u00a0\u2009\u202f\u2007\u2002\u2003\u3000"), " ")
_PLAIN |= {ord(char): f"\\frac{{{a}}}{{{b}}}" for char, (a, b) in _VULGAR.items()}
_PLAIN |= {ord(char): f"{command} " for char, command in _COMMANDS.items()}
_PLAIN |= {ord("、"): ",", ord("；"): ";", ord("："): ":", ord("，"): ",", ord("∶"): ":", ord("。"): "."}
_PLAIN |= {ord(c): "'" for c in "′’‘"} | {ord(c): '"' for c in "“”„"} | {ord("【"): "[", ord("】"): "]"}

_RAISED_FRACTION = re.compile("(?<![⁰¹²³⁴⁵⁶⁷⁸⁹])([⁰¹²³⁴⁵⁶⁷⁸⁹]++)[⁄/]([₀₁₂₃₄₅₆₇₈₉]+)")
_SUPERSCRIPT_RUN = re.compile(f"[{_SUPERSCRIPTS}]+")
_SUBSCRIPT_RUN = re.compile(f"[{_SUBSCRIPTS}]+")
_TO_ASCII = str.maketrans(_SUPERSCRIPTS + _SUBSCRIPTS, "0123456789+-()ni" * 2)
_JSON_ESCAPED = re.compile(r"\\\\(?=[a-zA-Z]{2})")
_STYLE_TAG = re.compile(r"<(b|strong|i|em|u|code|p|sup|sub)>([^<>]*)</\1>")
_RAISED = {"sup": "^", "sub": "_"}
_SIGN_IN_WORDS = re.compile(r"^(?:minus|negative)\s+(?=[\d.\\])", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"\\(?:begin|cr\b)")
_WRAPPING = " \t\r\n\f\v`"
_FULL_STOPS = (".", ",", ";", "?")
_SPACES = ("\\,", "\\;", "\\!", "\\ ", "\\:", "\\quad", "\\qquad", "~")
_PAIRS = (("**", "**"), ("__", "__"), ("\\(", "\\)"), ("\\[", "\\]"), ('"', '"'), ("$$", "$$"))


def make_plain(source: str, *, exotic_digits: bool = True) -> str:
    """Replace typographic characters by ASCII or LaTeX, then strip what surrounds an answer in a sentence.

    Args:
        source: the answer as it stands in the completion.
        exotic_digits: read the decimal digits of every script (``٣٧``); circled and spelled digits never count.
    """
    if source.isascii():
        text = source
    else:
        # A dash is a minus only in front: between two numbers it is a range.
        text = re.sub(r"^(\W*)–", r"\1-", source)
        text = _RAISED_FRACTION.sub(lambda found: found[0].translate(_TO_ASCII), text)
        text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_TO_ASCII)}}}", text)
        text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{run[0].translate(_TO_ASCII)}}}", text).translate(_PLAIN)
        if exotic_digits and not text.isascii():
            text = "".join(_ascii_digit(char) for char in text)
    if "</" in text:
        text = _STYLE_TAG.sub(lambda tag: tag[2] if tag[1] not in _RAISED else f"{_RAISED[tag[1]]}{{{tag[2]}}}", text)
    if "\\\\" in text and not _ENVIRONMENT.search(text):
        text = _JSON_ESCAPED.sub(r"\\", text)
    return _SIGN_IN_WORDS.sub("-", strip_wrapping(text.replace("{-}", "-")))


def strip_wrapping(text: str) -> str:
    """Remove math delimiters, emphasis, quotes and sentence punctuation around the whole text."""
    for _ in range(12):
        before = text
        text = _strip_spaces(text.strip(_WRAPPING))
        if text.endswith(_FULL_STOPS) and not text.endswith(("..", "\\,", "\\;")):
            text = text[:-1]
        for opening, closing in _PAIRS:
            if len(text) > len(opening) + 1 and text.startswith(opening) and text.endswith(closing):
                inside = text[len(opening) : -len(closing)]
                if opening not in inside and closing not in inside:
                    text = inside
        text = _strip_dollars(text)
        if text == before:
            break
    return text


def _strip_spaces(text: str) -> str:
    if text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1].rstrip()  # what is left of a blank set with a backslash
    for space in _SPACES:
        if text.startswith(space) and not text[len(space) : len(space) + 1].isalpha():
            text = text[len(space) :].lstrip()
        if text.endswith(space) and not text.endswith("\\" + space):
            text = text[: -len(space)].rstrip()
    return text


def _strip_dollars(text: str) -> str:
    """``$42$`` and ``$$$42``; in ``$18`` the dollar is a currency, which the grammar reads."""
    if text.startswith("$") and text.endswith("$") and not text.endswith("\\$"):
        return text.strip("$")
    return text.lstrip("$") if text.startswith("$$") else text


def _ascii_digit(char: str) -> str:
    return char if char.isascii() or unicodedata.category(char) != "Nd" else str(unicodedata.decimal(char))
