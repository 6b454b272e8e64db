"""Where in a completion the structured text stands: everything, the one code fence, or the block of one tag."""

from typing import Literal

from oncurve.verify.formats.faults import BadFormatError
from oncurve.verify.formats.fences import scan_fences
from oncurve.verify.items import one_line
from oncurve.verify.tags import TagsSettings, find_fault, scan_tags

Where = Literal["whole", "fence", "tag"]


def take_place(text: str, where: Where, *, label: str, tag: str) -> str:
    """Return the part of a completion that must be structured.

    Args:
        text: the completion.
        where: ``whole``: all of it. ``fence``: the content of its only code fence, labelled ``label`` or not at all;
            text may stand around the fence. ``tag``: the content of its only ``<tag>`` block.
        label: of the fence, in lower case.
        tag: name of the tag.

    Raises:
        BadFormatError: there is no such place, more than one, or it is not closed.
    """
    if where == "whole":
        return text
    return _fenced(text, label) if where == "fence" else _tagged(text, tag)


def _fenced(text: str, label: str) -> str:
    fences = scan_fences(text)
    if len(fences) != 1:
        raise BadFormatError(f"{len(fences)} code fences, expected one" if fences else "no code fence")
    (fence,) = fences
    if not fence.is_closed:
        raise BadFormatError("the code fence is never closed")
    if fence.label not in ("", label):
        raise BadFormatError(f"the code fence is labelled {one_line(fence.label, 40)}, expected {label}")
    return text[fence.start : fence.end]


def _tagged(text: str, tag: str) -> str:
    fault = find_fault(text, TagsSettings(order=(tag,), only=False))
    if fault:
        raise BadFormatError(fault)
    opening, closing = scan_tags(text, (tag,))
    return text[opening.end : closing.start]
