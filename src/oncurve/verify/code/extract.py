"""Where the program stands in a completion."""

from dataclasses import dataclass

from oncurve.verify.code.settings import CodeSettings

_NAMES = {
    "python": {"", "python", "python3", "py", "py3"},
    "c": {"", "c"},
    "cpp": {"", "cpp", "c++", "cc", "cxx"},
    "javascript": {"", "javascript", "js", "node"},
}


@dataclass(frozen=True, slots=True)
class Extracted:
    """The program, or why there is none."""

    program: str | None
    reason: str = ""


def extract_program(text: str, language: str, settings: CodeSettings) -> Extracted:
    """Find the program.

    Thinking is cut off first. ``fence``: the last block fenced by three or more backticks or tildes at the start of a
    line, named by the language or by nothing. A block that is never closed is no program, whatever stands before it:
    the completion was cut off or started anew. ``text``: all that is left.
    """
    opening, closing = f"<{settings.thinking_tag}>", f"</{settings.thinking_tag}>"
    text = text.rpartition(closing)[2]
    if opening in text:
        return Extracted(None, f"{opening} is never closed")
    if settings.carrier == "text":
        return Extracted(text) if text.strip() else Extracted(None, "the completion is empty")
    return _last_fence(text, _NAMES[language])


def _last_fence(text: str, names: set[str]) -> Extracted:
    fence, name = "", ""
    block: list[str] = []
    last: str | None = None
    for line in text.split("\n"):
        bare = line.strip()
        if not fence and bare[:3] in ("```", "~~~"):
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
