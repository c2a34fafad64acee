"""The program of an executor: import the app, fork the zygote, run jobs.

    python -m holdfast.entrypoints.executor '<JSON>'

The JSON is an `ExecutorStart`: the executor's name, its settings, and the descriptors that it inherits: the connection
to the supervisor and the lease clock. It also inherits the worker's lock, which is held while any process of the worker
lives.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from holdfast.app import Holdfast
from holdfast.client.limits import declarations
from holdfast.entrypoints.loading import AppNotFound, format_import_error, load_app
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.task.task import Task
from holdfast.worker import messages, stacks
from holdfast.worker.executor.executor import Executor
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.linux import die_with_parent, flush_each_line, set_process_name
from holdfast.worker.output.capture import by_context, capture_by_context
from holdfast.worker.output.console import ConsoleStream, log_to
from holdfast.worker.runners import fork_safety, zygote
from holdfast.worker.runners.child import run_jobs, warm_up
from holdfast.worker.runners.selection import FORKED, IN_PROCESS, chosen_runner, refusal
from holdfast.worker.settings import ExecutorStart, Pool
from holdfast.worker.supervisor.reload import loaded_files

log = logging.getLogger("holdfast.worker")


def _app_loaded(app: Holdfast, pool: Pool) -> bytes:
    address = app.address
    queues = sorted({task.effective_options.queue or DEFAULT_QUEUE for task in app.tasks.values()})
    return messages.pack(
        messages.AppLoaded(
            tasks=list(app.tasks),
            in_process=[name for name, task in app.tasks.items() if chosen_runner(task, pool) in IN_PROCESS],
            revision=app.revision,
            queues=queues,
            url=address.url,
            home=str(address.home or ""),
            namespace=address.namespace,
            timeout=address.timeout,
            schedules=list(app.declared_schedules.values()),
            limits=declarations(app.declared_limits.values(), app.revision),
            shared_queues=list(app.shared_queues.values()),
            subscriptions=list(app.declared_subscriptions.values()),
        )
    )


def _warn_about_threads(start: ExecutorStart, app: Holdfast, left: list[fork_safety.Thread]) -> None:
    """Warn that jobs are not forked, if the app has any that would be. The worker's first executor warns for all."""
    if start.name.endswith(".1") and any(chosen_runner(task, start.pool) in FORKED for task in app.tasks.values()):
        log.warning(
            "importing %s started threads that a fork would not copy: %s. So jobs of the runner fork run in a new "
            "interpreter each, and jobs of the runner process in reused interpreters. To fork them again, move "
            "into the task: %s",
            start.settings.app,
            fork_safety.list_threads(left),
            fork_safety.what_to_move(left),
        )


def _warn_about_directories(start: ExecutorStart, app: Holdfast) -> None:
    """Warn about tasks to which `in_directory` does not apply. The first executor of a worker warns for all."""
    shared = [name for name, task in app.tasks.items() if chosen_runner(task, start.pool) in IN_PROCESS]
    if start.pool.in_directory and shared and start.name.endswith(".1"):
        log.warning(
            "in_directory does not apply to jobs that share the executor's process, those of %s: a process has one "
            "working directory. Use current_job().directory, or a runner with a process per job",
            ", ".join(sorted(shared)),
        )


def _start_zygote(
    start: ExecutorStart, control: socket.socket, app: Holdfast, origins: fork_safety.ThreadOrigins
) -> zygote.Zygote:
    """Start a zygote, before this process has an event loop, a thread or a connection."""
    stack_file, settings = stacks.enable(), start.settings
    if left := fork_safety.unsafe_threads(origins):
        _warn_about_threads(start, app, left)
        return zygote.start_spawning(settings.app, settings.log_level, stack_file)

    def prepare() -> zygote.ProcessMain:
        reader = warm_up(f"{settings.directory}/warm-up")

        def load() -> Mapping[str, Task[..., Any]]:
            return app.tasks

        def run(kind: messages.ProcessKind, connection: socket.socket) -> None:
            if kind == messages.SPAWN:
                zygote.spawn(kind, connection, settings.app, settings.log_level, stack_file)
            run_jobs(reader, connection, load, stay=kind == messages.REUSE)

        return run

    print(end="", flush=True)  # else each job would print what is buffered
    return zygote.start(prepare, close=[control])


def _run(start: ExecutorStart, control: socket.socket, app: Holdfast, origins: fork_safety.ThreadOrigins) -> NoReturn:
    _warn_about_directories(start, app)
    zygote = _start_zygote(start, control, app, origins)
    set_process_name(f"hf:exec-{start.name.rpartition('.')[2]}")
    _send_files(start, control)
    control.sendall(_app_loaded(app, start.pool))
    if start.name.endswith(".1"):
        app.outage_policy.sender.start()  # sends calls that other processes left in the outbox
    lease_clock = LeaseClock(start.lease_clock)

    async def run() -> None:
        # Exit here, not after the loop: an abandoned coroutine or thread would delay that.
        executor = Executor(app, start, control=control, zygote=zygote, lease_clock=lease_clock)
        code = 1
        try:
            await executor.run()
            code = 0
            atexit._run_exitfuncs()
        except BaseException:
            log.exception("executor %s failed", start.name)
        finally:
            os._exit(code)

    asyncio.run(run())
    os._exit(1)


def _fail(start: ExecutorStart, control: socket.socket, reason: str) -> NoReturn:
    _send_files(start, control)
    control.sendall(messages.pack(messages.LoadFailed(reason)))
    sys.exit(3)


def _send_files(start: ExecutorStart, control: socket.socket) -> None:
    if start.settings.reload:
        control.sendall(messages.pack(messages.LoadedFiles(loaded_files())))


def main() -> None:
    start = msgspec.json.decode(sys.argv[1], type=ExecutorStart)
    die_with_parent(start.parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the supervisor handles them
    flush_each_line()
    capture_by_context()
    log_to(by_context(ConsoleStream(2), 2), start.settings.log_level)
    control = socket.socket(fileno=start.control)
    control.set_inheritable(False)
    os.set_inheritable(start.lease_clock, False)  # jobs and programs must not inherit it
    gc.disable()
    try:
        with fork_safety.watch_imports(start.settings.app.partition(":")[0]) as origins:
            app = load_app(start.settings.app)
    except AppNotFound as error:
        _fail(start, control, str(error))
    except BaseException as error:
        _fail(start, control, format_import_error(error))
    gc.enable()
    if reason := refusal(app.tasks, start.pool):
        _fail(start, control, reason)
    _run(start, control, app, origins)


if __name__ == "__main__":
    main()
