"""The fingerprint of an exception: the same for errors with the same cause, on every node and in every run.

It is a digest of the exception's class and of the functions of user code in its traceback, by module and name. Line
numbers, paths, messages and addresses are left out.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from hashlib import blake2s
from types import CodeType, TracebackType
from typing import NamedTuple

from holdfast.names import class_name

MAX_CAUSES = 5

_STANDARD_LIBRARY = tuple({sysconfig.get_path(path) + "/" for path in ("stdlib", "platstdlib")})
_INSTALLED = tuple({sysconfig.get_path(path) + "/" for path in ("purelib", "platlib")})
_PACKAGES = ("/site-packages/", "/dist-packages/")
_RUNNERS = ("holdfast.", "asyncio.", "concurrent.futures.", "threading.")  # modules of frames above those of the task


class Frame(NamedTuple):
    module: str
    code: CodeType

    @property
    def place(self) -> str:
        return f"{self.module}:{self.code.co_qualname}"

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def is_installed(self) -> bool:
        """Whether it belongs to an installed package."""
        path = self.code.co_filename
        return path.startswith(_INSTALLED) or any(part in path for part in _PACKAGES)

    @property
    def is_of_python(self) -> bool:
        """Whether it belongs to the standard library, or to Holdfast."""
        is_standard = self.code.co_filename.startswith((*_STANDARD_LIBRARY, "<frozen")) and not self.is_installed
        return is_standard or self.package == "holdfast"


class Origin(NamedTuple):
    """Where an exception came from: its fingerprint, and the innermost function of user code."""

    fingerprint: str
    place: str


def origin_of(exception: BaseException) -> Origin:
    """Return where an exception came from. Each function counts once, so the depth of a recursion does not matter."""
    frames = user_frames(exception.__traceback__)
    places = dict.fromkeys(frame.place for frame in frames)
    members = exception.exceptions if isinstance(exception, BaseExceptionGroup) else ()
    classes = [class_name(type(each)) for each in (exception, *_causes(exception))]
    fingerprint = _digest(*classes, *places, *sorted({class_name(type(member)) for member in members}))
    return Origin(fingerprint, frames[-1].place if frames else "")


def user_frames(trace: TracebackType | None) -> list[Frame]:
    """Return the frames of user code in a traceback; if there are none, the innermost frame.

    The package of the first frame is user code, even if it is installed: it has the task.
    """
    frames = list(_frames(without_runner(trace)))
    own = {frame.package for frame in frames[:1]}
    user = [frame for frame in frames if not frame.is_of_python and (frame.package in own or not frame.is_installed)]
    return user or frames[-1:]


def without_runner(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that called the task: those of Holdfast, and then those of the event loop."""
    own = trace
    prefixes: tuple[str, ...] = _RUNNERS[:1]
    while own is not None and f"{_module(own)}.".startswith(prefixes):
        own, prefixes = own.tb_next, _RUNNERS
    return own or trace


def _causes(exception: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions that this one was raised from."""
    cause = exception.__cause__
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _frames(trace: TracebackType | None) -> Iterator[Frame]:
    while trace is not None:
        yield Frame(_module(trace), trace.tb_frame.f_code)
        trace = trace.tb_next


def _module(trace: TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__", ""))


def _digest(*parts: str) -> str:
    return blake2s("\n".join(parts).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
