"""The command line: `holdfast`, one file per group of commands; `app.py` puts them together."""

from holdfast.cli.app import main

__all__ = ["main"]
