"""The border to transformers, tokenizers, safetensors and peft: their noise stays out, their failures become ours."""

import logging as levels
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

from oncurve.types import ModelError


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, load reports and warnings inside the block; what matters of them becomes a ModelError."""
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(levels.CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Run a foreign loader quietly; any failure of it means that ``what`` cannot be used.

    The net is wide because theirs is: a broken file surfaces as OSError, ValueError, KeyError, struct.error, a bare
    ``Exception`` of the tokenizers library, and more. Only a foreign call stands inside the block.

    Raises:
        ModelError: "Cannot read <what>: <first line of the cause>", with the cause chained.
    """
    try:
        with quiet():
            yield
    except Exception as error:
        cause = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise ModelError(f"Cannot read {what}: {cause}") from error
