"""Any program as a job: an argument list, stored as a call of a task that only some workers know.

    jobs.enqueue(jobs.program(["ffmpeg", "-i", "in.mov", "out.mp4"]))

No shell is involved, and the arguments are passed as they are. Workers that were started with --allow-exec run it; for
all others it is an unknown task. See `worker/runners/programs.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.codec import Shape
from holdfast.errors import Invalid, TooBig
from holdfast.job.options import Options
from holdfast.names import check_text
from holdfast.task.task import App, BoundCall, Task, make_task

PROGRAM = "holdfast.program"  # the task of all programs
MAX_ARGUMENTS = 4096
MAX_ARGUMENT = 128 * 1024 - 1  # bytes; Linux allows no more
MAX_BYTES = 512 * 1024  # of all arguments and environment variables


Word = str | os.PathLike[str]


class Ended(msgspec.Struct, frozen=True):
    """The result of a program that succeeded: its exit code, 0, and the last line that it printed."""

    exit_code: int
    last_line: str


RESULT = Shape.of(Ended)


class Program(NamedTuple):
    """A checked program."""

    arguments: list[str]
    cwd: str | None
    env: dict[str, str]
    stdin: str | None

    @classmethod
    def of(
        cls, arguments: Sequence[Word], cwd: Word | None = None, env: Mapping[str, str] | None = None, stdin: Any = None
    ) -> Program:
        """Check the arguments of a program.

        Raises:
            Invalid: no program can be started with them.
            TooBig: they are too many or too long.
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
            raise Invalid("the program has no name: its first argument is empty")
        made = cls(words, _optional(cwd, "cwd"), _variables(env), None if stdin is None else check_text(stdin, "stdin"))
        made._check_size()
        return made

    def _check_size(self) -> None:
        size = sum(len(word.encode()) + 1 for word in (*self.arguments, *self.env, *self.env.values()))
        if size > MAX_BYTES:
            raise TooBig(f"the program's arguments and variables are {size} bytes (limit {MAX_BYTES})")


def bind_program(app: App, chosen: Options, *arguments: Any, **more: Any) -> BoundCall[Ended]:
    """Return a call of a program with these options."""
    program = Program.of(*arguments, **more)
    # The app's default soft timeout is for tasks, which can yield; a program would start over.
    runs_apart = msgspec.structs.replace(chosen, runner="fork", soft_timeout=None)
    return program_task(app, runs_apart).bind(program.arguments, program.cwd, program.env or None, program.stdin)


def program_task(app: App, chosen: Options) -> Task[..., Ended]:
    """Return the task of all programs. Its function is never called: a process executes the program."""
    return make_task(_exec, app, chosen, PROGRAM)


def _exec(
    arguments: list[str],
    cwd: str | None = None,  # noqa: ARG001, only the signature counts
    env: dict[str, str] | None = None,  # noqa: ARG001
    stdin: str | None = None,  # noqa: ARG001
) -> Ended:
    raise Invalid(f"{arguments[0]} is a program and cannot be called; enqueue it for a worker with --allow-exec")


def _check_options(options: Options) -> None:
    if options.runner not in (None, "fork"):
        raise Invalid(f"runner is {options.runner!r}, but a program always has its own process; leave runner out")


_exec.check_options = _check_options  # type: ignore[attr-defined]


def _checked(value: Any, what: str) -> str:
    text = check_text(os.fspath(value) if isinstance(value, os.PathLike) else value, what)
    if "\0" in text:
        raise Invalid(f"{what} has a NUL character, which cannot be passed to a program")
    if len(text) > MAX_ARGUMENT or len(text.encode()) > MAX_ARGUMENT:
        raise TooBig(f"{what} has more than {MAX_ARGUMENT} bytes; write it to a file, or use stdin")
    return text


def _optional(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if not (text := _checked(value, what)):
        raise Invalid(f"{what} is empty; leave it out, or name a directory")
    return text


def _variables(env: Any) -> dict[str, str]:
    if env is not None and not isinstance(env, Mapping):
        raise Invalid(f"env is {env!r}; it must be a mapping of str to str")
    found = {_checked(name, "a name in env"): _checked(text, f"{name} in env") for name, text in (env or {}).items()}
    for name in found:
        if not name or "=" in name:
            raise Invalid(f"env has a variable {name!r}; a name must not be empty or contain =")
    return found
