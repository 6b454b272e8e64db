"""The entry point: run the command, and turn what went wrong into one message and an exit code."""

import os
import sys

from oncurve.cli.app import app
from oncurve.cli.interrupt import STOPPED
from oncurve.cli.output import flush_output, open_output
from oncurve.types import OncurveError

TRAINING_PACKAGES = ("torch", "transformers", "peft", "safetensors", "tokenizers", "psutil", "gguf")
"""What ``pip install oncurve`` alone does not bring."""

LABORATORY_PACKAGES = ("sklearn", "joblib", "matplotlib")
"""What `oncurve icl` needs on top of them."""


def main() -> None:
    """Run the command line; an error we understand is one message and exit code 1.

    With ``ONCURVE_TRACEBACK`` set in the environment it comes with its traceback.
    """
    open_output()
    try:
        _run()
    except BrokenPipeError:
        sys.exit(1)  # whoever read the result, such as `head`, has seen enough of it
    except (OncurveError, ValueError, OSError) as error:  # a ValueError is about something the user typed
        if "ONCURVE_TRACEBACK" in os.environ:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name not in (*TRAINING_PACKAGES, *LABORATORY_PACKAGES):
            raise
        half, extra = ("training half", "train") if error.name in TRAINING_PACKAGES else ("laboratory", "train,icl")
        print(f"error: this command needs the {half} ({error.name}): pip install 'oncurve[{extra}]'", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as error:
        print(str(error) or "stopped", file=sys.stderr)
        sys.exit(STOPPED)


def _run() -> None:
    try:
        app()
    finally:
        flush_output()
