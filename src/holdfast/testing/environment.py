"""The environment of tests: an empty server, and an app that uses it temporarily."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.app import Holdfast
from holdfast.client.results import Inbox
from holdfast.errors import Invalid
from holdfast.names import check_namespace, new_id
from holdfast.outbox import OutagePolicy
from holdfast.server import server
from holdfast.store import Address, AsyncStore, Clock, Deadline, Store, socket_url
from holdfast.testing.workbench import Workbench

SERVER_TIMEOUT = 30.0  # seconds to start or stop the server, on a machine that is busy with tests

_in_use: set[Holdfast] = set()
_benches: dict[Holdfast, Workbench] = {}
_lock = threading.Lock()


@contextmanager
def running_server() -> Iterator[str]:
    """Start an empty server and yield its URL. Stop it and delete its data at the end."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as home:
        try:
            yield socket_url(server.ensure(Path(home), timeout=SERVER_TIMEOUT))
        finally:
            server.stop(Path(home), timeout=SERVER_TIMEOUT)


def check_server(url: str) -> None:
    """Connect to a server once.

    Raises:
        Invalid, StoreUnavailable: there is none at this URL.
    """
    with closing(Store(Address.find(url))) as store:
        store.execute("PING")


@contextmanager
def use(app: Holdfast, url: str, *, namespace: str | None = None) -> Iterator[Workbench]:
    """Connect an app to another server during a block, and yield a workbench that runs its jobs.

    The change applies to all threads that use the app. Without a `namespace`, the app gets a new one, whose keys are
    deleted at the end.

    Raises:
        Invalid: the app is in use by another test.
        StoreUnavailable: no server is reachable at this URL.
    """
    name = f"test-{new_id()}" if namespace is None else check_namespace(namespace)
    address = Address.find(url, namespace=name, timeout=app.address.timeout)
    with closing(Store(address)) as store:
        clock = MovableClock(store)
    directory = Path(tempfile.gettempdir(), f"holdfast-test-{new_id()}")  # created when a job uses it
    with _redirected(app, address, clock):
        bench = _benches[app] = Workbench(app, clock, directory)
        try:
            yield bench
        finally:
            del _benches[app]
            shutil.rmtree(directory, ignore_errors=True)
            if namespace is None:
                _remove_keys(app.store)


@contextmanager
def bench_of(app: Holdfast) -> Iterator[Workbench]:
    """Yield the workbench that uses an app; without one, make one on a server of its own."""
    if (bench := _benches.get(app)) is not None:
        yield bench
        return
    with running_server() as url, use(app, url) as made:
        yield made


@contextmanager
def _redirected(app: Holdfast, address: Address, clock: Clock) -> Iterator[None]:
    """Replace everything in an app that depends on its address."""
    with _lock:
        if app in _in_use:
            raise Invalid(f"another test is using the app, in namespace {app.address.namespace}; wait for its end")
        _in_use.add(app)
    store = Store(address, clock=clock)
    replaced = {
        "address": address,
        "store": store,
        "async_store": _UnpooledStore(address, clock=clock),
        "_inbox": Inbox(store),
        "_async_inboxes": WeakKeyDictionary(),
    }
    before = {name: vars(app)[name] for name in (*replaced, "outage_policy")}
    vars(app).update(replaced)
    app.outage_policy = OutagePolicy(app, app.outage_policy.choice)
    try:
        yield
    finally:
        vars(app).update(before)
        store.close()
        _in_use.remove(app)


class _UnpooledStore(AsyncStore):
    """Opens a connection for each command, because the event loop of a test ends without closing connections."""

    async def execute(self, *parts: Any, blocks: float | None = None, deadline: Deadline | None = None) -> Any:
        store = AsyncStore(self.address)
        try:
            return await store.execute(*parts, blocks=blocks, deadline=deadline)
        finally:
            await store.close()


def _remove_keys(store: Store) -> None:
    """Delete all keys of the store's namespace."""
    cursor, pattern = 0, store.address.key.removesuffix("meta") + "*"
    while True:
        cursor, keys = store.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        if keys:
            store.execute("UNLINK", *keys)
        if int(cursor) == 0:
            return


class MovableClock:
    """The server's time, plus the time by which tests have advanced it.

    It starts before the server is asked for its time, and rounds up, so it is never behind the server. It reads a clock
    that libraries for freezing time do not patch.
    """

    def __init__(self, store: Store) -> None:
        requested = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        seconds, microseconds = store.execute("TIME")
        self._ahead = (int(seconds) * 1_000_000 + int(microseconds)) * 1000 - requested

    def __call__(self) -> int:
        return -(-(self._ahead + time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1_000_000)

    def advance(self, milliseconds: int) -> None:
        self._ahead += milliseconds * 1_000_000
