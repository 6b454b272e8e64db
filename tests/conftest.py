"""Options and limits that all tests share."""

import hypothesis
import pytest

# A busy machine is no reason to fail: a test is stopped by pytest-timeout, not by hypothesis.
hypothesis.settings.register_profile("oncurve", deadline=None)
hypothesis.settings.load_profile("oncurve")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-file",
        metavar="FILE",
        default=None,
        help="check every known operation of this JSON file of golden cases instead of the ones kept in tests/golden",
    )
