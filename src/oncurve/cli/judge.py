"""``oncurve verify``: judge completions that stand in a file, without a model and without torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oncurve.cli.early import refuse_early
from oncurve.types import DataError, Task, did_you_mean
from oncurve.verify import Item, RewardSettings, Scorer, verifier_names
from oncurve.verify.json_lines import gold_text, read_json_lines

KNOWN = ("completion", "gold", "verifier", "meta", "id", "prompt")
_EXAMPLE = '{"completion": "... <answer>1/2</answer>", "gold": "0.5"}'


def judge_file(completions: Path, config: Path | None, overrides: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one verdict per line of the file, in order.

    Raises:
        DataError: the file cannot be read, a line is not JSON, or lacks ``completion`` or ``gold``.
    """
    rows = read_json_lines(completions, holds="completion", example=_EXAMPLE)
    items = [_item(f"{completions}, line {number}", number, row) for number, row in rows]
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
    refuse_early(config, overrides)
    from oncurve.config import load_config  # needs the training half: a config names a model
    from oncurve.rollout.reward_model import NETWORK_VERIFIERS

    return Scorer(load_config(config, overrides).reward, builders=NETWORK_VERIFIERS)


def _item(where: str, number: int, row: dict[str, Any]) -> Item:
    if not isinstance(row.get("completion"), str):
        raise DataError(f"{where}: completion must be a string, got {row.get('completion')!r}. Expected {_EXAMPLE}")
    if "gold" not in row:
        raise DataError(f"{where}: gold is missing. Expected {_EXAMPLE}")
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
        gold=gold_text(row["gold"], where),
        kind="file",
        verifier=name,
        meta=row.get("meta", {}),
    )
    return Item(task=task, text=row["completion"])
