"""Programs as jobs: an argument list, stored as a call of a task that only workers with --allow-exec know.

    jobs.enqueue(jobs.program(["ffmpeg", "-i", "in.mov", "out.mp4"]))

No shell is involved, and the arguments are passed as they are. For workers that were started without --allow-exec it is
an unknown task. `worker/runners/programs.py` runs programs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.codec import TypeCodec
from holdfast.errors import Invalid, TooBig
from holdfast.job.options import CheckedOptions
from holdfast.names import PROGRAM_TASK, check_text
from holdfast.task.task import App, BoundCall, Task, make_task

PROGRAM = PROGRAM_TASK
MAX_ARGUMENTS = 4096
MAX_ARGUMENT = 128 * 1024 - 1  # bytes; Linux allows no more
MAX_BYTES = 512 * 1024  # of all arguments and environment variables


StrPath = str | os.PathLike[str]


class ProgramResult(msgspec.Struct, frozen=True):
    """The result of a program that succeeded: its exit code, 0, and the last line that it printed."""

    exit_code: int
    last_line: str


PROGRAM_RESULT = TypeCodec.of(ProgramResult)


class Program(NamedTuple):
    """A program to run, with its arguments checked."""

    arguments: list[str]
    cwd: str | None
    env: dict[str, str]
    stdin: str | None

    @classmethod
    def of(
        cls,
        arguments: Sequence[StrPath],
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Any = None,
    ) -> Program:
        """Check the arguments of a program.

        Raises:
            Invalid: no program can be started with these arguments.
            TooBig: there are too many arguments, or they are too long.
        """
        if isinstance(arguments, str) or not isinstance(arguments, Sequence) or not arguments:
            raise Invalid(
                f"expected a program as a list of arguments, not a shell command, got {arguments!r:.100}; "
                'write ["ffmpeg", "-i", "in.mov"]'
            )
        if len(arguments) > MAX_ARGUMENTS:
            raise TooBig(f"the program has {len(arguments)} arguments (limit {MAX_ARGUMENTS})")
        words = [_checked(word, f"argument {number} of the program") for number, word in enumerate(arguments)]
        if not words[0]:
            raise Invalid('the first argument, the name of the program, is empty; write ["ffmpeg", "-i", "in.mov"]')
        program = cls(
            words, _optional(cwd, "cwd"), _variables(env), None if stdin is None else check_text(stdin, "stdin")
        )
        program._check_size()
        return program

    def _check_size(self) -> None:
        size = sum(len(word.encode()) + 1 for word in (*self.arguments, *self.env, *self.env.values()))
        if size > MAX_BYTES:
            raise TooBig(
                f"the program's arguments and variables are {size} bytes (limit {MAX_BYTES}); write them to a file, or "
                "use stdin"
            )


def bind_program(app: App, options: CheckedOptions, *arguments: Any, **more: Any) -> BoundCall[ProgramResult]:
    """Return a call of a program with these options."""
    program = Program.of(*arguments, **more)
    # The app's default soft timeout is for tasks, which can yield; a program would start over.
    options = msgspec.structs.replace(options, runner="fork", soft_timeout=None)
    return program_task(app, options).bind(program.arguments, program.cwd, program.env or None, program.stdin)


def program_task(app: App, options: CheckedOptions) -> Task[..., ProgramResult]:
    """Return the task of all programs. Its function is never called: the job's process executes the program."""
    return make_task(_exec, app, options, PROGRAM)


def _exec(
    arguments: list[str],
    cwd: str | None = None,  # noqa: ARG001, only the signature counts
    env: dict[str, str] | None = None,  # noqa: ARG001
    stdin: str | None = None,  # noqa: ARG001
) -> ProgramResult:
    raise Invalid(f"{arguments[0]} is a program and cannot be called; enqueue it for a worker with --allow-exec")


def _check_options(options: CheckedOptions) -> None:
    if options.runner not in (None, "fork"):
        raise Invalid(f"runner is {options.runner!r}, but a program always runs in its own process; omit runner")


_exec.check_options = _check_options  # type: ignore[attr-defined]


def _checked(value: Any, what: str) -> str:
    text = check_text(os.fspath(value) if isinstance(value, os.PathLike) else value, what)
    if "\0" in text:
        raise Invalid(f"{what} has a NUL character, which cannot be passed to a program")
    if len(text) > MAX_ARGUMENT or len(text.encode()) > MAX_ARGUMENT:
        raise TooBig(f"{what} is {len(text.encode())} bytes (limit {MAX_ARGUMENT}); write it to a file, or use stdin")
    return text


def _optional(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not (text := _checked(value, what)):
        raise Invalid(f"{what} is empty; omit it, or name a directory")
    return text


def _variables(env: Any) -> dict[str, str]:
    if env is not None and not isinstance(env, Mapping):
        raise Invalid(f"env is {env!r}; it must be a mapping of str to str")
    found = {_checked(name, "a name in env"): _checked(text, f"{name} in env") for name, text in (env or {}).items()}
    for name in found:
        if not name or "=" in name:
            raise Invalid(f"env has a variable named {name!r}; a name must not be empty or contain =")
    return found
