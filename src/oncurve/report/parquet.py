"""Rollout records as parquet: one row group a step, so that one step is read without the others."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oncurve.report.storage import replacing, storage_errors
from oncurve.types import RunError

_INSERTED = pa.struct(
    [
        ("after", pa.int64()),
        ("token_ids", pa.list_(pa.int64())),
        ("text", pa.string()),
        ("after_chars", pa.int64()),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("group", pa.int64(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("prompt", pa.string()),
        pa.field("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        pa.field("gold", pa.string(), nullable=False),
        pa.field("index", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int64()), nullable=False),
        pa.field("token_ids", pa.list_(pa.int64()), nullable=False),
        pa.field("old_logprobs", pa.list_(pa.float64()), nullable=False),
        pa.field("policy_version", pa.int64(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("reward", pa.float64()),
        pa.field("components", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("evidence", pa.string(), nullable=False),
        pa.field("cause", pa.string()),
        pa.field("advantage", pa.float64(), nullable=False),
        pa.field("inserted", pa.list_(_INSERTED), nullable=False),
    ]
)
"""The columns of a rollout record, in the order of both stores. Exactly one of ``prompt`` and ``messages`` is set."""


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write rollout records, in the order of their steps, as a parquet file in one atomic move.

    Raises:
        StorageError: the disk refused; no file of that name appears.
    """
    with replacing(path) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        for _, rows in groupby(records, key=lambda record: record["step"]):
            table = pa.Table.from_pylist(
                [{**row, "components": list(row["components"].items())} for row in rows], schema=SCHEMA
            )
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def read_records(path: Path, step: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of a parquet file, of one step when ``step`` is given.

    Raises:
        RunError: the file is not the parquet of a rollout store.
        StorageError: the disk refused.
    """
    with _opened(path) as file:
        for index in range(file.num_row_groups):
            if step is not None and _step_of(file, index) != step:
                continue
            yield from file.read_row_group(index).to_pylist(maps_as_pydicts="strict")


def count_records(path: Path) -> dict[int, int]:
    """Return the number of records of each step, from the footer alone. Raises RunError, StorageError."""
    with _opened(path) as file:
        return {_step_of(file, index): file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)}


def _opened(path: Path) -> pq.ParquetFile:
    try:
        with storage_errors(path, "read"):
            file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise RunError(f"{path} is not a parquet file ({error}). Restore it, or remove it to read the rest.") from error
    if not file.schema_arrow.equals(SCHEMA):
        raise RunError(f"{path} has other columns than a rollout store. Read it with the version that wrote it.")
    return file


def _step_of(file: pq.ParquetFile, row_group: int) -> int:
    return int(file.metadata.row_group(row_group).column(0).statistics.min)
