"""Answers in prose: which sentence states the answer, and which part of a sentence is the value.

    The answer is 41.     答案是 $\\frac{3}{4}$。     Final Answer: **42**     Thus, the count is **318**.

A sentence that denies, hedges or names several candidates states nothing.
"""

import re
from collections import deque

from oncurve.verify.answers.vocabulary import word_set
from oncurve.verify.answers.wording import number_of_words

MAX_STATEMENT_CHARS = 600
MAX_MARKERS = 50

_MARKER = re.compile(
    r"\b(?:final\s{1,3})?(?:answers?|ans|result)\b(?:\s{0,3}\*{0,2}\s{0,3})(?:(?:is|are|equals|was)\b|[:=])[\s:*]{0,6}|"
    r"\bfinal\s{1,3}answer\b[\s:*]{0,6}|"
    r"(?:答案|解答|结果|答)\s{0,3}(?:应该?)?\s{0,3}(?:是|为|[:：])\s{0,3}|"
    r"(?:故|应|因此|所以)?选(?:择|项)?\s{0,3}[:：]?\s{0,3}(?=[A-J(（])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z<\"(*\[]|\s*$)|[。！？\n]")
_CHAT_TOKEN = re.compile(r"<\|[a-z_]{1,30}\|>")
_PLEASANTRY = re.compile(r"I hope (?:it|this) (?:is correct|helps)[.!]?\s*$", re.IGNORECASE)
_LEAD_INS = word_set(
    "so thus hence therefore the then and final correct that is we get my our a answer now which means to "
    "conclude conclusion in finally summary approximately approx definitely clearly simply exactly indeed just "
    "所以 因此 故 综上 综上所述"
)
_DENIALS = re.compile(
    r"\b(?:not|never|no|wrong|incorrect|false|except|neither|nor|or|either|maybe|perhaps|possibly|unless|but|cannot|rather|"
    r"unsure|unknown|might|may|could|if|instead|least|most|more|less|than|about|around|over|under|between|nearly|almost|like)\b|n't\b|不|或|非|也许|可能",
    re.IGNORECASE,
)
_MATH = re.compile(r"\$\$([^$]+)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_DISPLAY = re.compile(r"\$\$[^$]+\$\$|\\\[.+?\\\]", re.DOTALL)
_AMOUNT = re.compile(r"(\d[\d.,]*\s?[$€£¥])(?:\s[a-z. ]+)")
_COPULA = re.compile(
    r"\b(?:is|are|equals|equal\s+to|becomes|gives|get|obtain|by|have|has|that|at|was|so|thus|hence)\b|'s\b|’s\b|"
    r"等于|需要|得到|共有|一共|[是为得共有]",
    re.IGNORECASE,
)
_DENIED = re.compile(r"(?:不|非|并不|\b(?:not|never))\s*\Z")
_MODALS = frozenset(("could", "might", "may"))
_ALTERNATIVE = re.compile(
    r"(?:\b(?:or|else|maybe|perhaps|possibly|otherwise)|或|或者|也许)\W*(?:the|our|my)?\s*\Z", re.IGNORECASE
)
_BARE_VALUE = re.compile(
    r"[^a-zA-Z\u4e00-\u9fff]*\d[^a-zA-Z\u4e00-\u9fff]*(?:(?:the|our|my|so|final)\s+)*", re.IGNORECASE
)
_CALL = re.compile(r"\w\(\s*['\"]")
_ANYTHING = re.compile(r"\S")
_DENIED_PART = re.compile(r"[\d,;]")
_CONTRAST = re.compile(r",?\s+(?:and\s+)?not\b(?=[^,;.]*$)", re.IGNORECASE)
_CHOSEN = re.compile(
    r"(?:the\s+)?(?:option|choice|选项?)\s*\(?([A-J])\)?\s*(?:is\s+(?:the\s+)?(?:correct|right)(?:\s+\w+)?|正确)?",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(r"(?:so|thus|hence|therefore)\b|所以|因此", re.IGNORECASE)
_SIGN = re.compile(r"[:：=]")
_CALLED_ANSWER = re.compile(
    r"\s*(?:the|our|my)?\s*(?:final|correct|required|desired)?\s*(?:answer|solution|result)\W*", re.IGNORECASE
)
_NUMBER = re.compile(r"[-−]?\d[\d.,/]*")
_REASON = re.compile(r"\s+(?:because|since|as required|as desired)\b", re.IGNORECASE)
_COUNTED = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: [a-z]+)+")
_FIGURE = re.compile(r"(?<![\w.(\[])[-−]?\d[\d,]*(?:\.\d+)?(?:/\d+)?\s?%?(?![\w/)\]])")


def final_statements(text: str) -> list[str]:
    """The statements that count: the last one behind a marker, with those offered together with it.

    Without any marker, the last sentence, together with those directly before it that state another value in the same
    words (``x = 4. Or x = 5.``). Empty when nothing is stated.
    """
    region = _without_tail(_DISPLAY.sub(lambda formula: formula[0].replace("\n", " "), text))
    markers = list(_MARKER.finditer(region))[-MAX_MARKERS:]
    if not markers:
        return [] if region.endswith(("?", "？")) else _unmarked(region)  # a question states nothing
    statements: list[tuple[str, int, int]] = []  # statement, where its marker starts, where it ends
    is_hedged, marked = False, 0
    for marker in markers:
        content, end = _statement(region, marker.end())
        if statements and marker.start() < statements[-1][2]:
            before = region[marked : marker.start()]
            is_hedged = is_hedged or bool(_ALTERNATIVE.search(before) or _BARE_VALUE.fullmatch(before))
            statements[-1] = (content, statements[-1][1], end)  # "Final Answer: The answer is 4"
        else:
            is_hedged = False
            statements.append((content, marker.start(), end))
        marked = marker.end()
    if is_hedged:  # "the answer is 3 or the answer is 4", "the answer is 3 the answer is 4"
        return []
    first = len(statements) - 1
    while first > 0 and not _says_something(region[statements[first - 1][2] : statements[first][1]]):
        first -= 1
    return [content for content, _, _ in statements[first:] if content.strip(" *.:")]


def _unmarked(region: str) -> list[str]:
    """The last sentence and its like directly before it: they offer several answers."""
    last = _last_sentence(region)
    if not last:
        return []
    statements, frame = [last], _frame(last)
    end = region.rstrip(" \t\r\n.。!?！？").rfind(last)
    while len(statements) < MAX_MARKERS and end > 0:
        before = _last_sentence(region[:end])
        if not before or _frame(before) != frame:
            break
        statements.insert(0, before)
        end = region.rfind(before, 0, end)
    return statements


def _frame(sentence: str) -> str:
    """A sentence without its last number and what introduces it: equal for two that state the same thing."""
    words = re.sub(r"^(?:or|maybe|perhaps|possibly|alternatively|else)\b[\s,]*", "", sentence, flags=re.IGNORECASE)
    words = _without_lead_in(words)
    numbers = deque(_NUMBER.finditer(words), maxlen=1)  # the last; a pattern that says so would be quadratic
    if not numbers:
        return sentence
    number = numbers[0]
    return f"{words[: number.start()]}#{words[number.end() :]}".casefold().strip(" $*\\().")


def has_marker(text: str) -> bool:
    """True when some sentence says that it states the answer."""
    return _MARKER.search(_without_tail(text)) is not None


def candidates(text: str, *, is_marked: bool = False) -> list[str]:
    """Parts of a sentence that may be the value it states, the likeliest first. Empty when it denies or hedges.

    ``is_marked``: the sentence stood behind ``The answer is`` or the like, so that its only number is the answer.
    """
    statements = final_statements(text)
    if not statements:
        return []
    sentence = _without_remark(_CONTRAST.split(_REASON.split(statements[-1])[0])[0].strip())
    chosen = _CHOSEN.fullmatch(_without_lead_in(sentence))
    found: list[str] = [chosen[1]] if chosen else []
    copulas = [*_SIGN.finditer(sentence)][-6:] + [*_COPULA.finditer(sentence)][-12:]
    for copula in reversed(copulas):
        tail = sentence[copula.end() :].strip(" *,")
        if _CALLED_ANSWER.fullmatch(tail):
            found.append(_without_lead_in(sentence[: copula.start()].strip()))
            break
        if tail and _DENIALS.match(tail) is None and not _DENIED.search(sentence, 0, copula.start()):
            counted, amount = _COUNTED.fullmatch(tail), _AMOUNT.fullmatch(tail)
            found += [amount[1]] if amount else [tail, counted[1]] if counted else [tail]
    if _DENIALS.search(sentence):
        # What follows the last denial is asserted only after what was denied, by a copula of its own.
        denial = list(_DENIALS.finditer(sentence))[-1]
        needed = _ANYTHING if denial[0].casefold() in _MODALS else _DENIED_PART
        return [
            part for part in found if sentence.endswith(part) and needed.search(sentence[denial.end() : -len(part)])
        ]
    formulas = [next(group for group in match.groups() if group) for match in _MATH.finditer(sentence)]
    if len(formulas) == 1 and _num_digits(_MATH.sub("", sentence)) == 0:
        found.append(formulas[0])
    found.append(_without_lead_in(sentence))
    figures = _FIGURE.findall(_MATH.sub(" \\g<0> ", sentence).replace("$", " "))
    is_conclusion = is_marked or _MARKER.search(text) or _CONCLUSION.match(sentence)
    if (
        is_conclusion
        and len(figures) == 1
        and not _CALL.search(sentence)
        and _num_digits(sentence) == _num_digits(figures[0])
    ):
        found.append(figures[0])
    return found


def _without_remark(sentence: str) -> str:
    """Drop words in parentheses at the end, unless they hedge or name a number."""
    head, opening, remark = sentence.rstrip(" .*").rpartition("(")
    words = remark.removesuffix(")")
    if not opening or not remark.endswith(")") or _num_digits(words) or "\\" in words or _DENIALS.search(words):
        return sentence
    spelled = number_of_words(words)
    is_word = len(words) > 1 and words.replace(" ", "").replace("-", "").isalpha()
    return head.rstrip() if is_word and spelled in (None, _integer(head)) else sentence


def _integer(text: str) -> int | None:
    digits = text.strip(" $*")
    return int(digits) if digits.isdigit() and len(digits) < 20 else None


def _num_digits(text: str) -> int:
    return sum(c.isdigit() for c in text)


def _without_tail(text: str) -> str:
    """Cut what is no part of the answer behind it: chat tokens, code fences, a pleasantry."""
    token = _CHAT_TOKEN.search(text)
    region = text[: token.start()] if token else text
    return _PLEASANTRY.sub("", region.replace("```", "").rstrip()).rstrip()


def _statement(text: str, start: int) -> tuple[str, int]:
    """From a marker to the end of its sentence; when nothing stands there, the next line that is not blank."""
    while start < len(text) and text[start] in " \t\r\n*":
        start += 1
    end_match = _SENTENCE_END.search(text, start, start + MAX_STATEMENT_CHARS)
    end = end_match.start() if end_match else min(len(text), start + MAX_STATEMENT_CHARS)
    return text[start:end].strip(" *"), end


def _last_sentence(text: str) -> str:
    stripped = text.rstrip(" \t\r\n.。!?！？")
    ends = [match.end() for match in _SENTENCE_END.finditer(stripped, max(0, len(stripped) - 2000))]
    start = ends[-1] if ends else max(0, len(stripped) - 2000)
    return stripped[start:].strip()


def _says_something(between: str) -> bool:
    words = re.findall(r"[^\W\d_]+", between.casefold())
    return any(word not in _LEAD_INS for word in words)


def _without_lead_in(sentence: str) -> str:
    """``Therefore`` and the like in front of a value."""
    words = sentence.split(" ")
    while words and re.sub(r"\W", "", words[0]).casefold() in _LEAD_INS | {"answer", "find", "that", "so"}:
        words.pop(0)
    return " ".join(words)
