"""The store: one conversation, sync and async, whatever happens to the connection and the server."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import HoldfastError, StoreFull, StoreUnavailable, commands, functions, server
from holdfast.commands import NewJob
from holdfast.errors import WrongSchema
from holdfast.store import Address, AsyncStore, Store
from tests import outages
from tests.outages import Switch, eventually
from tests.servers import running_server

Run = Callable[[commands.Command[Any]], Any]


def job(id: str, payload: bytes = b"{}") -> NewJob:
    return NewJob(id=id, payload=payload, queue="q", task="t")


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, address: Address) -> Iterator[Run]:
    """Runs commands, by either store: what holds for one holds for the other."""
    if request.param == "sync":
        store = Store(address)
        yield store.run
        store.close()
        return
    with asyncio.Runner() as runner:
        other = AsyncStore(address)
        yield lambda command: runner.run(other.run(command))
        runner.run(other.close())


@pytest.fixture
def switch() -> Iterator[Switch]:
    with outages.switch() as made:
        yield made


def test_the_library_is_loaded_when_the_server_does_not_have_it(run: Run, server_url: str) -> None:
    assert run(commands.enqueue([job("a")])).created == [True]
    with redis.Redis.from_url(server_url) as client:
        client.function_flush()
        assert run(commands.enqueue([job("a")])).created == [False]
        names = [library[1].decode() for library in client.function_list()]
    assert names == [f"holdfast_{functions.digest()}"]


def test_releases_run_side_by_side(run: Run, server_url: str) -> None:
    run(commands.enqueue([job("a")]))
    older = functions.library().replace(functions.digest(), "0" * 12)
    with redis.Redis.from_url(server_url) as client:
        client.function_load(older, replace=True)
        assert run(commands.count()) == 1
        client.function_delete("holdfast_" + "0" * 12)


def test_a_connection_that_was_cut_is_made_anew(run: Run, server_url: str) -> None:
    run(commands.enqueue([job("a")]))
    with redis.Redis.from_url(server_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert run(commands.count()) == 1


def test_another_schema_is_refused_and_nothing_is_changed(run: Run, address: Address, server_url: str) -> None:
    with redis.Redis.from_url(server_url) as client:
        client.hset(address.key, "schema", 99)
        with pytest.raises(WrongSchema, match="holdfast migrate"):
            run(commands.enqueue([job("a")]))
        assert client.hgetall(address.key) == {b"schema": b"99"}


def test_a_full_server_refuses_new_jobs_and_lets_the_old_ones_end(namespace: str) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        store = Store(Address.find(url, namespace=namespace))
        store.run(commands.enqueue([job("a")]))
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull, match="nothing was stored"):
            store.run(commands.enqueue([job("b")]))
        (claimed,) = store.run(commands.claim("n/w.1", commands.claim_args(["q"], counter=1, limit=5))).jobs
        assert claimed.id == "a"
        store.close()


def test_what_the_server_refuses_for_reasons_of_its_own_is_said_in_one_sentence(run: Run, server_url: str) -> None:
    run(commands.count())
    with redis.Redis.from_url(server_url) as client:
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-hset"])
        try:
            with pytest.raises(HoldfastError, match="refused a command"):
                run(commands.enqueue([job("a")]))
        finally:
            client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all"])


def test_a_stopped_server_gives_a_clear_time_out(namespace: str) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        pid = client.info("server")["process_id"]
        store = Store(Address.find(url, namespace=namespace, timeout=0.2))
        store.run(commands.count())
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="did not answer within"):
                store.run(commands.count())
        finally:
            os.kill(pid, signal.SIGCONT)
        assert store.run(commands.count()) == 0
        store.close()


def test_a_reply_that_comes_late_answers_nobody_else(address: Address) -> None:
    async def use() -> None:
        store = AsyncStore(address)
        waiting = asyncio.create_task(store.execute("BLPOP", "nothing", 30, blocks=30))
        while "cmd=blpop" not in str(await store.execute("CLIENT", "LIST")):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [await store.run(commands.count()) for _ in range(20)] == [0] * 20
        await store.close()

    asyncio.run(use())


@pytest.mark.parametrize("steps", range(30))
def test_a_call_that_is_cancelled_ends_whatever_it_was_about_to_do(address: Address, steps: int) -> None:
    async def use() -> None:
        store = AsyncStore(address)
        waiting = asyncio.create_task(store.execute("BLPOP", "nothing", 30, blocks=30))
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await store.close()

    asyncio.run(use())


def _count_in_child(store: Store, pipe: Any) -> None:
    pipe.send(store.run(commands.count()))
    store.close()


def test_a_forked_process_makes_connections_of_its_own(address: Address) -> None:
    store = Store(address)
    store.run(commands.enqueue([job("a")]))
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_count_in_child, args=(store, its))
    process.start()
    assert ours.recv() == 1
    process.join()
    assert store.run(commands.count()) == 1
    store.close()


def test_the_embedded_server_comes_back_when_it_was_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="hfs-") as folder:
        store = Store(Address(None, Path(folder) / ".holdfast"))
        try:
            store.run(commands.enqueue([job("a")]))
            status = server.status(Path(folder) / ".holdfast")
            assert status.pid is not None
            os.kill(status.pid, signal.SIGKILL)
            assert store.run(commands.count()) == 1
        finally:
            store.close()
            server.stop(Path(folder) / ".holdfast")


def test_the_connections_of_an_event_loop_end_with_it(switch: Switch) -> None:
    switch.on()
    store = AsyncStore(Address.find(switch.url))

    async def use() -> None:
        waiting = asyncio.create_task(store.execute("BLPOP", "nothing", 30, blocks=30))
        await asyncio.gather(*(store.run(commands.count()) for _ in range(5)))
        await asyncio.sleep(0)
        assert not waiting.done()

    for _ in range(3):
        asyncio.run(use())
    gc.collect()  # an unclosed connection would say so now
    assert len(store._clients) == 0
    with redis.Redis.from_url(switch.url) as client:
        eventually(lambda: len(client.client_list()) == 1)


def test_a_loop_that_was_closed_without_ceremony_is_forgotten(address: Address) -> None:
    store = AsyncStore(address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(store.run(commands.count()))
            loop.close()
        asyncio.run(store.run(commands.count()))
        del loop
        gc.collect()
    assert len(store._clients) == 0


def test_importing_holdfast_imports_nothing_that_is_not_needed() -> None:
    heavy = ("redis", "click", "rich", "holdfast.worker", "holdfast.cli")
    code = f"import sys, holdfast; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@contextmanager
def tls_proxy(folder: Path, target: str) -> Iterator[int]:
    """A port on which TLS is spoken, and passed on to a server's unix socket."""
    name = "/CN=localhost"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", name]
    line += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_unix_connection(target)
        await asyncio.gather(pump(reader, outer), pump(inner, writer))

    loop = asyncio.new_event_loop()
    proxy = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield proxy.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(proxy.close)
        asyncio.run_coroutine_threadsafe(_end_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, to make a certificate")
def test_tls_is_spoken_and_certificates_are_checked(tmp_path: Path, server_url: str, namespace: str) -> None:
    with tls_proxy(tmp_path, server_url.removeprefix("unix://")) as port:
        trusting = f"rediss://localhost:{port}?ssl_ca_certs={tmp_path}/cert.pem"
        store = Store(Address.find(trusting, namespace=namespace))
        assert store.run(commands.enqueue([job("a")])).created == [True]
        store.close()
        with pytest.raises(StoreUnavailable, match="certificate"):
            Store(Address.find(f"rediss://localhost:{port}", namespace=namespace)).run(commands.count())
