"""What the pages have in common: templates that escape, the style, and scripts that the page allows by their hashes."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from oncurve.report.readers import flattened


def page_environment() -> Environment:
    """The templates of the package; every value is escaped, and a name that is missing is an error."""
    return Environment(
        loader=PackageLoader("oncurve.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page_scripts() -> list[Markup]:
    """Plotly, and ours that draws with it the figures in ``#figures``."""
    return [_script(get_plotlyjs()), _script(_asset("report.js"))]


def style() -> Markup:
    """The style sheet of all pages."""
    return Markup(_asset("report.css"))  # noqa: S704 - our own file


def content_policy(scripts: Sequence[str]) -> str:
    """The security policy of a page: these scripts, by their hashes, and no connection at all."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def named_texts(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values of nested tables as they are shown, each with its dotted name: text as it is, all else as JSON."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        for name, value in flattened(table).items()
    ]


def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _script(text: str) -> Markup:
    """Mark our own script as safe; a browser reads any line end as LF, and so must the hash."""
    return Markup(text.replace("\r\n", "\n").replace("\r", "\n"))  # noqa: S704 - our own file and plotly's
