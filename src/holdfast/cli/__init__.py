"""The command line: the program `holdfast`, one module per noun; `program.py` puts the commands together."""

from holdfast.cli.program import main

__all__ = ["main"]
