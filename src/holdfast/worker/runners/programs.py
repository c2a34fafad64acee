"""Jobs that run a program: the job's own process becomes the program.

    job's process ──execve──▶ program        its group gets SIGTERM and SIGKILL, its memory is measured, its output is
                                             the attempt's log, and the zygote reports its exit status

No middleware of the app runs around it. A program cannot save: an attempt that is requeued starts from the beginning.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from holdfast.errors import HoldfastError
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.limit import Limit
from holdfast.job.options import DEFAULTS
from holdfast.job.outcome import Error, Outcome, Release, Succeed, failed
from holdfast.task.call import Call
from holdfast.task.program import PROGRAM, Program, ProgramResult, program_task
from holdfast.task.task import App, Task
from holdfast.worker.runners.working_directory import make_directory, work_in

MAX_LINE = 4096  # characters of a line of output
TAIL = 16 * 1024  # bytes of output that a failure shows
MAX_LINES = 40
RUN_AGAIN = os.EX_TEMPFAIL  # exit code of a program that was asked to end, and has more to do

Tasks = Mapping[str, Task[..., Any]]

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def known_tasks(app: App, tasks: Tasks, *, allow_exec: bool) -> Tasks:
    """Return the tasks that a worker runs: those of its app, and programs if they are allowed."""
    if not allow_exec:
        return tasks
    return {**tasks, PROGRAM: program_task(app, msgspec.structs.replace(DEFAULTS, runner="fork"))}


def exec_program(call: Call) -> Outcome:
    """Become the program of a job. Return only on failure: the outcome of the job."""
    try:
        program = _read(call.payload)
        make_directory(call.directory)
        _give_stdin(program.stdin)
        _exec(program, call)
    except HoldfastError as error:
        return failed("NoProgram", str(error), group="no-program", final="refused")
    except OSError as error:
        words = f"{program.arguments[0]} cannot be run here: {error.strerror}"
        if program.cwd is not None and error.filename == program.cwd:
            words += f": {program.cwd}"
        return failed("NoProgram", words, group="no-program")


def _read(payload: bytes) -> Program:
    """Read the program of a call, and check it again: any client may have stored it."""
    args, kwargs = program_task(NoApp(), DEFAULTS).signature.decode(payload)
    return Program.of(*args, **kwargs)


def program_name(payload: bytes) -> str:
    """Return the name of the program that a call runs, without its path; "" if it cannot be read."""
    try:
        return Path(_read(payload).arguments[0]).name
    except HoldfastError:
        return ""


def _exec(program: Program, call: Call) -> NoReturn:
    if program.cwd is not None:
        os.chdir(program.cwd)
    elif call.in_directory:
        work_in(call.directory)
    own = {"HOLDFAST_JOB": call.id, "HOLDFAST_ATTEMPT": str(call.attempt), "HOLDFAST_DIRECTORY": call.directory}
    for number in _IGNORED_BY_PYTHON:  # or the program would ignore them too
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(program.arguments[0], program.arguments, {**os.environ, **program.env, **own})  # noqa: S606, no shell


def _give_stdin(text: str | None) -> None:
    """Give the program its standard input; without a text it is empty, as for all jobs."""
    if text is None:
        return
    file = os.memfd_create("stdin")
    data = memoryview(text.encode())
    while data:
        data = data[os.write(file, data) :]
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)


class NoApp:
    """Stands in for the app of a task that is never enqueued."""

    def enqueue(self, *_: object) -> NoReturn:
        raise NotImplementedError

    async def aenqueue(self, *_: object) -> NoReturn:
        raise NotImplementedError

    @property
    def declared_limits(self) -> dict[str, Limit]:
        return {}


def program_outcome(status: int, log: str, *, program: str, asked: str) -> Outcome:
    """Return the outcome of a program that has ended.

    `log` is the file of its output; `program` its name; `asked` is the reason if it was asked to end early.
    """
    lines = _last_lines(log)
    last = lines[-1] if lines else ""
    if status == 0:
        return Succeed(msgspec.json.encode(ProgramResult(0, last)))
    if asked and os.WIFEXITED(status) and os.WEXITSTATUS(status) == RUN_AGAIN:
        return Release(asked)
    group, words = _describe(status)
    if asked and group == "signal-SIGTERM":
        words += f", sent by its {asked}"
    described = Failure(
        type="ProgramFailed",
        message=f"{words}; its last line: {last}" if last else words,
        traceback="".join(f"{line}\n" for line in lines),
        group=group,
        place=program,
    )
    return Error(failure.encode(described), group)


def _describe(status: int) -> tuple[str, str]:
    """Return the group of a failure, and its message."""
    if os.WIFSIGNALED(status):
        name = _signal_name(os.WTERMSIG(status))
        return f"signal-{name}", f"the program was ended by {name}"
    code = os.WEXITSTATUS(status)
    return f"exit-{code}", f"the program ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return str(number)


def _last_lines(log: str) -> list[str]:
    """Return the last lines of output that are not empty."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read(TAIL).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return list(deque((line[:MAX_LINE].rstrip() for line in lines if line.strip()), maxlen=MAX_LINES))
