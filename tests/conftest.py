"""Options that all tests share."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-file",
        metavar="FILE",
        default=None,
        help="check every known operation of this JSON file of golden cases instead of the ones kept in tests/golden",
    )
