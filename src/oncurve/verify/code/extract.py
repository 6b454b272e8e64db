"""Where the program stands in a completion."""

from dataclasses import dataclass

from oncurve.verify.code.settings import Carrier

_NAMES = {
    "python": {"", "python", "python3", "py", "py3"},
    "c": {"", "c"},
    "cpp": {"", "cpp", "c++", "cc", "cxx"},
    "javascript": {"", "javascript", "js", "node"},
}
_FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The program, or why there is none."""

    program: str | None
    reason: str = ""


def extract_program(text: str, language: str, carrier: Carrier, thinking_tag: str = "think") -> Extracted:
    """Find the program.

    Thinking is cut off first. ``fence``: the last block fenced by three or more backticks or tildes at the start of a
    line, named by the language or by nothing. A block that is never closed is no program, whatever stands before it:
    the completion was cut off or started anew. ``text``: all that is left. ``continuation``: as ``fence`` where it
    begins with a fence; else the text up to what is no part of the function that was begun.
    """
    opening, closing = f"<{thinking_tag}>", f"</{thinking_tag}>"
    text = text.rpartition(closing)[2]
    if opening in text:
        return Extracted(None, f"{opening} is never closed")
    if carrier == "fence" or (carrier == "continuation" and text.lstrip()[:3] in _FENCES):
        return _last_fence(text, _NAMES[language])
    if not text.strip():
        return Extracted(None, "the completion is empty")
    return Extracted(text if carrier == "text" else _continued(text))


def _continued(text: str) -> str:
    """The lines up to the first, after one that is not blank, that stands at the left edge.

    A function's body is indented, so there something else begins: HumanEval's stop words (another ``def``, ``class``,
    a comment, ``if``, ``print``), prose, or a fence. Where the text itself begins at the left edge, the whole function
    is written once more, and definitions and imports belong to it.
    """
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if line.strip())
    kept = (")", "]", "}") if lines[first][0].isspace() else (")", "]", "}", "@", "def ", "class ", "import ", "from ")
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if line.strip() and not line[0].isspace() and not line.startswith(kept):
            return "\n".join(lines[:number]) + "\n"
    return text


def _last_fence(text: str, names: set[str]) -> Extracted:
    fence, name = "", ""
    block: list[str] = []
    last: str | None = None
    for line in text.split("\n"):
        bare = line.strip()
        if not fence and bare[:3] in _FENCES:
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
            name, block = bare[len(fence) :].strip().lower().partition(" ")[0], []
        elif fence and bare.startswith(fence) and not bare.strip(fence[0]):
            last = "\n".join(block) + "\n" if name in names else last
            fence = ""
        elif fence:
            block.append(line)
    if fence:
        return Extracted(None, "a code block is never closed")
    if last is None or not last.strip():
        return Extracted(None, f"no code block ({', '.join(sorted(names - {''}))})")
    return Extracted(last)
