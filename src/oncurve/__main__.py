"""``python -m oncurve`` is the same as ``oncurve``."""

from oncurve.cli import main

main()
