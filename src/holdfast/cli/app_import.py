"""Importing the user's app, named on the command line as `module` or `module:name`."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from holdfast import Holdfast

MAX_TRACEBACK = 8  # lines


def check_module(path: str) -> None:
    """Check that the module of an app can be found, without importing it.

    Raises:
        UsageError: the path is malformed, or there is no such module.
    """
    module, colon, name = path.partition(":")
    top = module.partition(".")[0]
    if module.endswith(".py") or "/" in module:
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        raise click.UsageError(f"expected APP as `module` or `module:name`, got a file; try {meant}, or {meant}:name.")
    if not all(part.isidentifier() for part in (*module.split("."), *([name] if colon else []))):
        raise click.UsageError(f"expected APP as `module` or `module:name`, got {path!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        raise click.UsageError(
            f"module {top!r} is neither in {os.getcwd()} nor installed; change to its directory, or set PYTHONPATH."
        )


def import_app(path: str) -> Holdfast:
    """Import an app into this process."""
    from holdfast.entrypoints.loading import load_app

    check_module(path)
    try:
        return load_app(path)
    except LookupError as error:
        raise click.UsageError(f"{error.args[0] if error.args else error}.") from None
    except (Exception, SystemExit) as error:
        raise click.UsageError(f"cannot import the app {path}:\n{_end_of_traceback(error)}") from None


def _end_of_traceback(error: BaseException) -> str:
    """Return the last lines of a traceback, without the frames of the import system."""
    from holdfast.entrypoints.loading import format_import_error

    return "\n".join(format_import_error(error).splitlines()[-MAX_TRACEBACK:])
