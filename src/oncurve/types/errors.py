"""Errors a caller can handle.

OncurveError                 everything below; the command line prints it without a traceback
├── ConfigError              a setting is unknown, out of range, or contradicts another
├── DataError                a task file, a gold answer or a set of prompts cannot be used
├── ModelError               a model directory, tokenizer or checkpoint cannot be used
├── NumericsError            NaN or inf in weights, loss or log-probabilities
├── RunError                 a run folder cannot be used: another config, no checkpoint, too many failed verdicts
└── StorageError             the disk refused: full, read-only, not permitted

``ValueError`` stays for arguments of the pure functions. A message says what, where (file and key), why it
matters, and what to type next.
"""


class OncurveError(Exception):
    """Base of every error that oncurve raises on purpose."""


class ConfigError(OncurveError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(OncurveError):
    """A task file, a gold answer or a set of prompts cannot be used."""


class ModelError(OncurveError):
    """A model directory, a tokenizer or a checkpoint cannot be used."""


class NumericsError(OncurveError):
    """NaN or inf where a finite number is needed."""


class RunError(OncurveError):
    """A run folder cannot be used or continued."""


class StorageError(OncurveError):
    """The disk refused a write or a read."""
