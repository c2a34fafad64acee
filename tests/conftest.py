"""What tests share: a server per test process, a namespace per test, and the test's own clock."""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from holdfast.store.store import Address, Store
from tests.support.relay import Relay
from tests.support.servers import running_server
from tests.support.shells import Shell
from tests.support.workers import Crew, new_crew

settings.register_profile("holdfast", deadline=None)  # the machine may be slow
settings.load_profile("holdfast")


def pytest_configure() -> None:
    """Accept Ctrl-C: a shell without job control starts `make test &` with SIGINT ignored, and so all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, those that have a time limit of their own, so that nobody waits for one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@dataclass
class TestClock:
    """Server time as the test says. It moves when the test moves it."""

    __test__ = False

    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def namespace() -> str:
    return "t" + secrets.token_hex(6)


@pytest.fixture
def address(server_url: str, namespace: str) -> Address:
    return Address.find(server_url, namespace=namespace)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(address: Address, clock: TestClock) -> Iterator[Store]:
    """A store under the test's clock."""
    made = Store(address, clock=clock)
    yield made
    made.close()


@pytest.fixture
def crew(server_url: str, tmp_path: Path) -> Iterator[Crew]:
    """A namespace of its own, for workers that the test starts."""
    with new_crew(server_url, tmp_path) as made:
        yield made


@pytest.fixture
def relay(crew: Crew) -> Iterator[Relay]:
    """A way to the store that can be cut, or made slow."""
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    made = Relay(folder, crew.url)
    yield made
    made.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A crew with one worker, on a server of its own, for all tests that do no harm to it."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("company")) as made:
        made.start("--processes", "4", "--lease", "2s", "--queues", "urgent,default")
        yield made


@pytest.fixture
def shell(tmp_path: Path, server_url: str, namespace: str) -> Iterator[Shell]:
    """The command line, in a directory with an app and a namespace of its own."""
    made = Shell(tmp_path, server_url, namespace)
    yield made
    made.client.close()
