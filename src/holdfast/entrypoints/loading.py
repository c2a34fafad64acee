"""Import an app by the name of its module: in executors, spawned job processes, and the command line."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from holdfast.app import Holdfast
from holdfast.store import mask

_IMPORTERS = ("<frozen importlib", os.path.dirname(importlib.__file__), os.path.dirname(os.path.dirname(__file__)))


class AppNotFound(LookupError):
    """The module was imported, but it has no such app."""


def load_app(path: str) -> Holdfast:
    """Import a module and return the app in it: `module`, or `module:name` if it has several."""
    module_name, _, name = path.partition(":")
    sys.path.insert(0, os.getcwd())
    module = _import(module_name)
    if name:
        app = getattr(module, name, None)
        if not isinstance(app, Holdfast):
            raise AppNotFound(f"{module_name} has no Holdfast app named {name}")
        return app
    apps = {id(value): value for value in vars(module).values() if isinstance(value, Holdfast)}
    if not apps:
        raise AppNotFound(f"{module_name} has no Holdfast app: it needs a line such as `jobs = Holdfast()`")
    if len(apps) > 1:
        raise AppNotFound(f"{module_name} has {len(apps)} Holdfast apps; choose one: {module_name}:name")
    return apps.popitem()[1]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        parent, _, attribute = name.rpartition(".")
        if error.name == name and isinstance(getattr(sys.modules.get(parent), attribute, None), Holdfast):
            raise AppNotFound(f"{name} is not a module; try {parent}:{attribute}") from None
        raise


def format_import_error(error: BaseException) -> str:
    """Return the traceback of an import, without the frames of the import system and passwords of URLs."""
    described = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in described.stack if not frame.filename.startswith(_IMPORTERS)]
    described.stack = traceback.StackSummary.from_list(frames)
    return mask("".join(described.format()))
