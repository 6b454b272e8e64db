"""A SQLite database in memory that knows SELECT, INSERT, UPDATE and DELETE on its own tables.

How long a statement may take is counted in instructions of SQLite's machine and not in seconds, so that the same
statement has the same answer on every machine and at every time.
"""

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_FUNCTIONS = frozenset(
    (
        *("abs", "avg", "coalesce", "count", "ifnull", "iif", "instr", "length", "like", "lower", "ltrim", "max"),
        *("min", "nullif", "replace", "round", "rtrim", "sign", "substr", "substring", "sum", "total", "trim"),
        *("typeof", "upper"),
    )
)
"""All that depend on nothing but their arguments and make nothing larger than these."""
_SCHEMA = ("sqlite_master", "sqlite_schema")
_EVERY = 1000
"""Instructions between two looks at the count."""
_MAX_TEXT = 10_000
_MAX_PAGES = 256


class Database:
    """One tool, ``sql``: carries out one statement.

    Args:
        directory: not used; the database is in memory.
        limits: ``instructions`` of a statement, ``rows`` of an answer.
    """

    def __init__(self, directory: Path, limits: Mapping[str, Any]) -> None:  # noqa: ARG002  every environment gets one
        self._limits = limits
        self._tables: tuple[str, ...] = ()
        self._left = 0
        self._connection = sqlite3.connect(":memory:", isolation_level=None)

    def reset(self, start: Mapping[str, Any]) -> None:
        """Make tables: ``{name: {"columns": [...], "rows": [[...], ...]}}``. Raises ValueError: a name is none."""
        db = self._connection
        db.execute(f"PRAGMA max_page_count = {_MAX_PAGES}")
        for table, content in start.items():
            columns = content["columns"]
            if not all(_NAME.fullmatch(name) for name in (table, *columns)):
                raise ValueError(f"table {table} or one of its columns has no usable name")
            db.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
            marks = ", ".join("?" for _ in columns)
            db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', content["rows"])  # noqa: S608  names are checked
        self._tables = tuple(start)
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_TEXT),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
        ):
            db.setlimit(limit, value)
        db.set_authorizer(self._authorize)
        db.set_progress_handler(self._count, _EVERY)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Carry one statement out. Raises ValueError: it is refused, wrong, or takes too long."""
        if name != "sql":
            raise ValueError(f"no tool {name[:40]}")
        self._left, most = self._limits["instructions"] // _EVERY, self._limits["rows"]
        cursor = self._connection.cursor()
        try:
            cursor.execute(arguments["query"])
            rows = cursor.fetchmany(most + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, UnicodeError) as error:
            raise ValueError(str(error)[:200]) from None
        finally:
            cursor.close()
        if cursor.description is None:
            return "ok" if cursor.rowcount < 0 else f"{cursor.rowcount} rows changed"
        lines = ["|".join("null" if value is None else str(value) for value in row) for row in rows[:most]]
        return "\n".join([*lines, *(["..."] if len(rows) > most else [])]) or "no rows"

    def state(self) -> dict[str, Any]:
        """Every table with its columns, and its rows in an order that their content alone decides."""
        db = self._connection
        db.set_progress_handler(None, 0)
        found = {}
        for table in self._tables:
            cursor = db.execute(f'SELECT * FROM "{table}"')  # noqa: S608  names are checked
            columns = [column[0] for column in cursor.description]
            rows = [[_plain(value) for value in row] for row in cursor]
            found[table] = {"columns": columns, "rows": sorted(rows, key=repr)}
        db.close()
        return found

    def _authorize(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and (first in self._tables or first in _SCHEMA or second == ""):
            return sqlite3.SQLITE_OK
        writes = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
        if action in writes and first in self._tables:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    def _count(self) -> int:
        self._left -= 1
        return int(self._left < 0)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
