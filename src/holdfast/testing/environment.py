"""Where tests happen: a server with no data, and an app that keeps its jobs there for a while."""

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
from holdfast.outbox.policy import OutagePolicy
from holdfast.server import server
from holdfast.store import Address, AsyncStore, Clock, Deadline, Store, socket_url
from holdfast.testing.workbench import Workbench

PATIENCE = 30.0  # seconds for a server to start or to stop, on a machine that is busy with tests

_in_use: set[Holdfast] = set()
_lock = threading.Lock()


@contextmanager
def running_server() -> Iterator[str]:
    """Start a server with no data, and yield its URL; afterwards nothing is left of it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as home:
        try:
            yield socket_url(server.ensure(Path(home), timeout=PATIENCE))
        finally:
            server.stop(Path(home), timeout=PATIENCE)


@contextmanager
def use(app: Holdfast, url: str, *, namespace: str | None = None) -> Iterator[Workbench]:
    """Have an app keep its jobs elsewhere for a while, and run them there by hand.

    All that uses the app meanwhile, in any thread, uses it there. Without a `namespace` it gets a new one, whose keys
    are removed in the end.

    Raises:
        Invalid: the app is used so already.
        StoreUnavailable: there is no server at this URL.
    """
    chosen = f"test-{new_id()}" if namespace is None else check_namespace(namespace)
    address = Address.find(url, namespace=chosen, timeout=app.address.timeout)
    with closing(Store(address)) as store:
        clock = MovableClock(store)
    directory = Path(tempfile.gettempdir(), f"holdfast-test-{new_id()}")  # made when a job asks for one
    with _placed_at(app, address, clock):
        try:
            yield Workbench(app, clock, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            if namespace is None:
                _remove_keys(app.store)


@contextmanager
def _placed_at(app: Holdfast, address: Address, clock: Clock) -> Iterator[None]:
    """Exchange all that an app knows of where its store is."""
    with _lock:
        if app in _in_use:
            raise Invalid(f"this app is used for a test already, in namespace {app.address.namespace}")
        _in_use.add(app)
    store = Store(address, clock=clock)
    place = {
        "address": address,
        "store": store,
        "async_store": _BriefStore(address, clock=clock),
        "_inbox": Inbox(store),
        "_async_inboxes": WeakKeyDictionary(),
    }
    before = {name: vars(app)[name] for name in (*place, "outage_policy")}
    vars(app).update(place)
    app.outage_policy = OutagePolicy(app, app.outage_policy.choice)
    try:
        yield
    finally:
        vars(app).update(before)
        store.close()
        _in_use.remove(app)


class _BriefStore(AsyncStore):
    """Connects anew for each command: a test's event loop ends without anybody closing what was opened in it."""

    async def execute(self, *parts: Any, blocks: float | None = None, deadline: Deadline | None = None) -> Any:
        store = AsyncStore(self.address)
        try:
            return await store.execute(*parts, blocks=blocks, deadline=deadline)
        finally:
            await store.close()


def _remove_keys(store: Store) -> None:
    """Remove the keys of a namespace."""
    cursor, pattern = 0, store.address.key.removesuffix("meta") + "*"
    while True:
        cursor, keys = store.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        if keys:
            store.execute("UNLINK", *keys)
        if int(cursor) == 0:
            return


class MovableClock:
    """The server's time when it was asked, and what has passed since then, or was added.

    It counts from before the question was sent, and rounds up, so it is never behind the server. And it reads a clock
    that libraries which freeze the time leave alone.
    """

    def __init__(self, store: Store) -> None:
        asked = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        seconds, microseconds = store.execute("TIME")
        self._ahead = (int(seconds) * 1_000_000 + int(microseconds)) * 1000 - asked

    def __call__(self) -> int:
        return -(-(self._ahead + time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1_000_000)

    def advance(self, milliseconds: int) -> None:
        self._ahead += milliseconds * 1_000_000
