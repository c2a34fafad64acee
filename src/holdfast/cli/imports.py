"""Apps, named on the command line: `module` or `module:name`. What is wrong with one is said without our own frames."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from holdfast import Holdfast

LAST_LINES = 8  # of a traceback


def check_module(path: str) -> None:
    """Refuse an app whose module is not there, as far as that can be told without importing anything."""
    module, colon, name = path.partition(":")
    top = module.partition(".")[0]
    if module.endswith(".py") or "/" in module:
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        raise click.UsageError(f"{path!r} is a file; APP is a module: {meant}, or {meant}:name.")
    if not all(part.isidentifier() for part in (*module.split("."), *([name] if colon else []))):
        raise click.UsageError(f"{path!r} is no APP; it is a module, or module:name.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        raise click.UsageError(
            f"there is no module {top!r} in {os.getcwd()}, nor is it installed; "
            "run this where the module is, or set PYTHONPATH."
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
        raise click.UsageError(
            f"the app {path} cannot be imported; correct this first:\n{_last_lines(error)}"
        ) from None


def _last_lines(error: BaseException) -> str:
    """Return the end of a traceback, without the frames that only import."""
    from holdfast.entrypoints.loading import failed_import

    return "\n".join(failed_import(error).splitlines()[-LAST_LINES:])
