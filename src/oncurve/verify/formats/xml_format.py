"""The ``xml`` verifier: is a completion well-formed XML with the elements that are asked for?

The text is read as a stream by libxml2 with everything off that could reach beyond it or grow it: no document type,
so no entities but the five of XML itself, no network, no recovery, no tree.
"""

from collections.abc import Sequence

from pydantic import Field, model_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.formats.faults import BadFormatError
from oncurve.verify.formats.place import Where, take_place
from oncurve.verify.items import Item, correct, one_line, wrong
from oncurve.verify.tags import has_visible


class XmlSettings(Settings):
    """Where the XML stands and which elements it has."""

    where: Where = "whole"
    """``whole``: the completion is the XML. ``fence``: its only code fence. ``tag``: its only block of ``tag``."""

    tag: str = Field("answer", min_length=1)
    """The tag for ``where = "tag"``."""

    root: str = ""
    """Name of the root element; with a namespace, ``{uri}name``. Empty: any."""

    children: tuple[str, ...] = ()
    """Names of the root's child elements: exactly these, in this order, no text between them. Empty: anything."""

    non_empty: bool = True
    """Each of ``children``, or without them the root, holds something visible."""

    max_chars: int = Field(1_000_000, ge=1, le=5_000_000)
    """Longest XML that is read; a longer one is wrong."""

    max_depth: int = Field(64, ge=1, le=200)
    """Most elements inside each other; a deeper one is wrong."""

    @model_validator(mode="after")
    def _root_is_named(self) -> "XmlSettings":
        if self.children and not self.root:
            raise ValueError("children are those of the root element: name it with root")
        return self


class XmlVerifier:
    """Reward 1 for well-formed XML with the elements that are asked for, 0 otherwise."""

    name = "xml"

    def __init__(self, settings: XmlSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> Verdict:
        try:
            place = take_place(item.text, self.settings.where, label="xml", tag=self.settings.tag)
            _check(_read(place.strip(" \t\r\n"), self.settings), self.settings)
        except BadFormatError as found:
            return wrong(str(found))
        return correct("XML as asked for")


class _Outline:
    """What is kept of a document while it streams by: the root, its children, and where something shows."""

    def __init__(self, max_depth: int) -> None:
        self.root = ""
        self.children: list[str] = []
        self.shows: list[bool] = []
        """Whether the root itself (first) and each of its children hold something visible."""
        self._depth = 0
        self._max_depth = max_depth

    def start(self, name: str, _: object) -> None:
        self._depth += 1
        if self._depth > self._max_depth:
            raise BadFormatError(f"elements deeper than {self._max_depth} levels")
        if self._depth <= 2:
            self.shows.append(False)
        if self._depth == 1:
            self.root = name
        elif self._depth == 2:
            self.children.append(name)

    def end(self, _: str) -> None:
        self._depth -= 1

    def data(self, text: str) -> None:
        place = 0 if self._depth == 1 else -1
        self.shows[place] = self.shows[place] or has_visible(text)

    def close(self) -> "_Outline":
        return self


def _read(text: str, settings: XmlSettings) -> _Outline:
    from lxml import etree

    if len(text) > settings.max_chars:
        raise BadFormatError(f"{len(text)} characters, at most {settings.max_chars} are read as XML")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise BadFormatError("a document type is not accepted: it can define entities and name files")
    parser = etree.XMLParser(
        target=_Outline(settings.max_depth),
        encoding="utf-8",  # whatever the declaration of the text claims
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        recover=False,
        collect_ids=False,
    )
    try:
        outline: _Outline = etree.fromstring(text.encode(), parser)
    except UnicodeEncodeError:
        raise BadFormatError("the text holds half of a surrogate pair, which is no character") from None
    except etree.LxmlError as error:
        raise BadFormatError(f"not XML: {one_line(str(error), 200)}") from None
    for entry in parser.error_log.filter_from_errors():  # of namespaces: they do not stop the parser
        raise BadFormatError(f"not XML: {one_line(entry.message, 200)}")
    return outline


def _check(outline: _Outline, settings: XmlSettings) -> None:
    if settings.root and outline.root != settings.root:
        raise BadFormatError(f"the root is {one_line(outline.root, 60)}, expected {settings.root}")
    if settings.children:
        if outline.children != list(settings.children):
            found = ", ".join(outline.children[:10]) or "nothing"
            raise BadFormatError(f"the root holds {one_line(found, 120)}, expected {', '.join(settings.children)}")
        if outline.shows[0]:
            raise BadFormatError(f"text between the children of {settings.root}")
    if settings.non_empty:
        shown = outline.shows[1:] if settings.children else [any(outline.shows)]
        if not all(shown):
            names = settings.children or (outline.root,)
            raise BadFormatError(f"<{one_line(names[shown.index(False)], 60)}> is empty")
