"""The tables of docs/concepts/presets.md, from the presets. ``python -m tests.algo.presets_page`` renews them."""

import re
from pathlib import Path

from oncurve.algo import PRESETS, ObjectiveSettings, describe_objective

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "presets.md"
START, END = "<!-- generated: tables -->", "<!-- generated: end -->"
TRAINERS = ("trl", "verl", "openrlhf", "nemo_rl", "areal", "prime_rl", "slime")


def lines_of(name: str) -> list[str]:
    """The loss, what modifies it, and the advantage, as printed."""
    formula = describe_objective(ObjectiveSettings(preset=name), group_size=8, max_tokens=1024, temperature=1.0)
    lines = re.sub(r"\n {4}", " ", formula.text).splitlines()
    found = [line for line in lines if re.match(r"  (L|ℓᵢₜ|p\d?ᵢₜ|vᵢₜ|Aᵢₜ?) = ", line)]
    return [line.split(" — ")[0].strip() for line in found]


def tables() -> str:
    """Two tables: what papers propose, and what other trainers run by default."""
    return "\n\n".join(
        [
            "### From papers",
            table([name for name in PRESETS if name not in TRAINERS]),
            "### What other trainers run by default",
            table(list(TRAINERS)),
        ]
    )


def table(names: list[str]) -> str:
    rows = [
        "| preset | loss and advantage | source | what the source does and these settings do not |",
        "|---|---|---|---|",
    ]
    for name in names:
        lines = "<br>".join(f"`{line}`" for line in lines_of(name))
        rows.append(f"| `{name}` | {lines} | {PRESETS[name].source} | {PRESETS[name].differs} |")
    return "\n".join(rows)


def renewed(page: str) -> str:
    before, _, rest = page.partition(START)
    return f"{before}{START}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
