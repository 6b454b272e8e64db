"""``oncurve verify``: judge completions that stand in a file, without a model and without torch."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oncurve.types import DataError, Task, did_you_mean
from oncurve.verify import Item, RewardSettings, Scorer, verifier_names

KNOWN = ("completion", "gold", "verifier", "meta", "id", "prompt")


def judge_file(completions: Path, config: Path | None, overrides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one verdict per line of the file, in order.

    Raises:
        DataError: a line is not JSON, or lacks ``completion`` or ``gold``.
    """
    items = [_item(completions, number, line) for number, line in enumerate(_lines(completions), 1) if line.strip()]
    if not items:
        raise DataError(f"{completions} holds no completion. Expected one JSON object a line: {_example()}")
    with _scorer(config, overrides) as scorer:
        for item, verdict in zip(items, scorer.score(items), strict=True):
            yield {
                "id": item.task.id,
                "status": str(verdict.status),
                "reward": verdict.reward,
                "components": dict(verdict.components),
                "evidence": verdict.evidence,
                "cause": verdict.cause,
            }


def _scorer(config: Path | None, overrides: Sequence[str]) -> Scorer:
    if config is None and not overrides:
        return Scorer(RewardSettings())
    from oncurve.config import load_config  # needs the training half: a config names a model
    from oncurve.rollout.reward_model import NETWORK_VERIFIERS

    return Scorer(load_config(config, overrides).reward, builders=NETWORK_VERIFIERS)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None


def _item(path: Path, number: int, line: str) -> Item:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}). Expected {_example()}") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: a line holds one JSON object, got {type(row).__name__}. Expected {_example()}")
    missing = [key for key in ("completion", "gold") if not isinstance(row.get(key), str)]
    if missing:
        raise DataError(f"{where}: {missing[0]} must be a string, got {row.get(missing[0])!r}. Expected {_example()}")
    unknown = sorted(set(row) - set(KNOWN))
    if unknown:
        raise DataError(f"{where}: unknown key {unknown[0]!r}. Known: {', '.join(KNOWN)}; extra columns go into meta.")
    if not isinstance(row.get("meta", {}), dict):
        raise DataError(f"{where}: meta must be an object, got {row['meta']!r}")
    if not isinstance(row.get("verifier", "answer"), str):
        raise DataError(f"{where}: verifier must be a string, the name of a verifier, got {row['verifier']!r}")
    name = row.get("verifier", "answer")
    if name not in verifier_names():
        hint = did_you_mean(name, verifier_names())
        raise DataError(f"{where}: there is no verifier {name!r}.{hint} Known: {', '.join(verifier_names())}.")
    task = Task(
        id=str(row.get("id", number)),
        prompt=str(row.get("prompt", "")),
        gold=row["gold"],
        kind="file",
        verifier=name,
        meta=row.get("meta", {}),
    )
    return Item(task=task, text=row["completion"])


def _example() -> str:
    return '{"completion": "... <answer>1/2</answer>", "gold": "0.5"}'
