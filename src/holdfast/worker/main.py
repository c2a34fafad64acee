"""The start of an executor's process: import the app, fork the zygote, run.

    python -m holdfast.worker.main '<JSON>'

The JSON names the executor, its settings, and the descriptors that it inherits: the connection to the supervisor, the
shared pulse, and the worker's lock, which is held as long as any process of the worker lives.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import traceback

import msgspec

from holdfast.client import Holdfast
from holdfast.worker import wire, zygote
from holdfast.worker.child import run_job
from holdfast.worker.executor import Executor
from holdfast.worker.pulse import Pulse
from holdfast.worker.settings import Start
from holdfast.worker.system import die_with_parent


def load_app(path: str) -> Holdfast:
    """Import a module and return the app in it: `module`, or `module:name` if it has several."""
    module_name, _, name = path.partition(":")
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(module_name)
    if name:
        app = getattr(module, name, None)
        if not isinstance(app, Holdfast):
            raise LookupError(f"{module_name} has no Holdfast app named {name}")
        return app
    apps = {id(value): value for value in vars(module).values() if isinstance(value, Holdfast)}
    if len(apps) != 1:
        raise LookupError(f"{module_name} has {len(apps)} Holdfast apps; say which: {module_name}:name")
    return apps.popitem()[1]


def _hello(app: Holdfast) -> bytes:
    address = app.address
    return wire.pack("hello", address.url, str(address.home or ""), address.namespace, address.timeout)


def _run(start: Start, control: socket.socket, app: Holdfast) -> None:
    # The zygote first: before there is a loop, a thread or a connection here.
    forks = zygote.start(lambda connection: run_job(connection, app.tasks), close=[control])
    control.sendall(_hello(app))

    async def run() -> None:
        await Executor(app, start.name, start.settings, control=control, zygote=forks, pulse=Pulse(start.pulse)).run()
        # At once, but for what the app asked to be done at its exit: a coroutine or thread that was abandoned would
        # hold up the end of the loop and of the interpreter.
        atexit._run_exitfuncs()
        os._exit(0)

    asyncio.run(run())


def main() -> None:
    start = msgspec.json.decode(sys.argv[1], type=Start)
    die_with_parent(start.parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the supervisor hears them, and says what to do
    logging.basicConfig(level=start.settings.log_level, format="%(asctime)s %(levelname)s %(message)s")
    control = socket.socket(fileno=start.control)
    gc.disable()
    try:
        app = load_app(start.settings.app)
    except BaseException:
        control.sendall(wire.pack("failed", traceback.format_exc()))
        sys.exit(3)
    gc.enable()
    _run(start, control, app)


if __name__ == "__main__":
    main()
