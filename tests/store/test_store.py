"""The store, sync and async: commands, retries, deadlines, and failures of the connection and the server."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
import redis

from holdfast import HoldfastError, StoreFull, StoreUnavailable
from holdfast.errors import WrongSchema
from holdfast.server import server
from holdfast.store import commands, library
from holdfast.store.connection import LATE, AsyncConnection, Connection
from holdfast.store.deadline import Deadline
from holdfast.store.store import Address, AsyncStore, Store
from tests.support import outages
from tests.support.new_job import NewJob
from tests.support.outages import PATIENCE, Switch, eventually
from tests.support.servers import running_server

Run = Callable[[commands.Command[Any]], Any]


def job(id: str, payload: bytes = b"{}") -> NewJob:
    return NewJob(id=id, payload=payload, queue="q", task="t")


@contextmanager
def running(how: str, address: Address) -> Iterator[Callable[..., Any]]:
    """Calls a method of either store."""
    if how == "sync":
        store = Store(address)
        yield lambda name, *args, **more: getattr(store, name)(*args, **more)
        store.close()
        return
    with asyncio.Runner() as runner:
        other = AsyncStore(address)
        yield lambda name, *args, **more: runner.run(getattr(other, name)(*args, **more))
        runner.run(other.close())


@pytest.fixture(params=["sync", "async"])
def how(request: pytest.FixtureRequest) -> str:
    """By which store: what holds for one holds for the other."""
    return str(request.param)


@pytest.fixture
def call(how: str, address: Address) -> Iterator[Callable[..., Any]]:
    with running(how, address) as made:
        yield made


@pytest.fixture
def run(call: Callable[..., Any]) -> Run:
    return lambda command: call("run", command)


@pytest.fixture
def switch() -> Iterator[Switch]:
    with outages.switch() as made:
        yield made


def test_the_library_is_loaded_when_the_server_does_not_have_it(run: Run, server_url: str) -> None:
    assert run(commands.enqueue([job("a")])).created == [True]
    with redis.Redis.from_url(server_url) as client:
        client.function_flush()
        assert run(commands.enqueue([job("a")])).created == [False]
        names = [found[1].decode() for found in client.function_list()]
    assert names == [f"holdfast_{library.digest()}"]


def test_releases_run_side_by_side(run: Run, server_url: str) -> None:
    run(commands.enqueue([job("a")]))
    older = library.library().replace(library.digest(), "0" * 12)
    with redis.Redis.from_url(server_url) as client:
        client.function_load(older, replace=True)
        assert run(commands.count()) == 1
        client.function_delete("holdfast_" + "0" * 12)


def test_a_connection_that_was_cut_is_opened_again(run: Run, server_url: str) -> None:
    run(commands.enqueue([job("a")]))
    with redis.Redis.from_url(server_url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    assert run(commands.count()) == 1


def test_another_schema_is_refused_and_nothing_is_changed(run: Run, address: Address, server_url: str) -> None:
    with redis.Redis.from_url(server_url) as client:
        client.hset(address.key, "schema", 99)
        with pytest.raises(
            WrongSchema, match=r"schema 99, .* use the release that wrote the data, or another namespace"
        ):
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


def test_limits_are_defined_in_a_full_server(namespace: str) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        store = Store(Address.find(url, namespace=namespace))
        store.run(commands.count())  # loads the library
        client.config_set("maxmemory", 1)
        assert store.run(commands.declare_limit("api", 2, per=0, revision=0)) == "applied"
        assert store.run(commands.set_limit("api", 1))
        assert store.run(commands.limits()).limits[0].slots == 1
        store.close()


def test_an_error_of_the_server_itself_is_reported_in_one_sentence(run: Run, server_url: str) -> None:
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


def test_a_late_reply_is_not_taken_for_that_of_another_command(address: Address) -> None:
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
def test_a_cancelled_call_ends_at_any_point(address: Address, steps: int) -> None:
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
    assert len(store._loops) == 0
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
    assert len(store._loops) == 0


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
        try:
            await asyncio.gather(pump(reader, outer), pump(inner, writer))
        finally:  # also if the test ends before it notices that a connection was closed
            outer.transport.abort()
            writer.transport.abort()

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
def test_tls_works_and_certificates_are_checked(tmp_path: Path, server_url: str, namespace: str, how: str) -> None:
    with tls_proxy(tmp_path, server_url.removeprefix("unix://")) as port:
        trusting = f"rediss://localhost:{port}?ssl_ca_certs={tmp_path}/cert.pem"
        with running(how, Address.find(trusting, namespace=namespace)) as call:
            assert call("run", commands.enqueue([job("a")])).created == [True]
            big = [job(str(number), b"x" * 10_000) for number in range(300)]
            assert call("run", commands.enqueue(big)).created == [True] * 300
            assert call("execute", "BLPOP", "nothing", 0.01, blocks=0.01) is None
        with (
            running(how, Address.find(f"rediss://localhost:{port}", namespace=namespace)) as call,
            pytest.raises(StoreUnavailable, match="certificate"),
        ):
            call("run", commands.count())


def test_password_and_database_number_are_used(how: str) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        client.config_set("requirepass", "secret")
        with running(how, Address.find(f"unix://:secret@{url.removeprefix('unix://')}?db=3")) as call:
            assert call("run", commands.enqueue([job("a")])).created == [True]
            assert "db=3 " in call("execute", "CLIENT", "LIST").decode()
        with running(how, Address.find(url)) as call, pytest.raises(HoldfastError, match="Authentication required"):
            call("run", commands.count())


# What comes over a line


def test_a_reply_that_comes_in_pieces_is_put_together(server_url: str, namespace: str, how: str) -> None:
    with outages.tearing(server_url) as url, running(how, Address.find(url, namespace=namespace)) as call:
        jobs = [job(str(number), b"x" * number) for number in range(20)]
        assert call("run", commands.enqueue(jobs)).created == [True] * 20
        claimed = call("run", commands.claim("n/w.1", commands.claim_args(["q"], counter=1, limit=20))).jobs
        assert [(each.id, each.payload) for each in claimed] == [(each.id, each.payload) for each in jobs]


def test_an_unsolicited_reply_is_not_taken_for_that_of_a_command(how: str) -> None:
    answers = iter(range(100))

    def answer(command: list[bytes]) -> bytes:
        return b"+OK\r\n" if command[0] != b"GET" else b":%d\r\n:99\r\n" % next(answers)

    with outages.answering(answer) as url, running(how, Address.find(url)) as call:
        assert [call("execute", "GET", "x") for _ in range(20)] == list(range(20))


def test_an_invalid_reply_counts_as_an_unreachable_server(how: str) -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"+OK\r\n" if command[0] != b"FCALL" else b"HTTP/1.1 400 Bad Request\r\n\r\n"

    with (
        outages.answering(answer) as url,
        running(how, Address.find(url)) as call,
        pytest.raises(StoreUnavailable, match="Protocol error"),
    ):
        call("run", commands.count())


def test_a_blocking_pop_has_the_time_that_it_asks_for_and_no_more(call: Callable[..., Any], how: str) -> None:
    assert call("execute", "BLPOP", "nothing", 0.3, blocks=0.3) is None
    with (
        outages.silent() as url,
        running(how, Address.find(url, timeout=0.05)) as other,
        pytest.raises(StoreUnavailable, match=r"did not answer within 0\.1 s"),
    ):
        other("execute", "BLPOP", "nothing", 0.05, blocks=0.05)


def test_each_command_has_its_own_deadline_on_a_shared_connection(server_url: str, namespace: str, how: str) -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"" if command[0] == b"GET" else b"+OK\r\n"

    with outages.answering(answer) as url, running(how, Address.find(url)) as call:
        call("execute", "PING", deadline=Deadline(600))
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.1 s"):
            call("execute", "GET", "x", deadline=Deadline(0.1))
    with running(how, Address.find(server_url, namespace=namespace)) as call:
        call("execute", "PING", deadline=Deadline(0.1))
        assert call("execute", "BLPOP", "nothing", 0.3, deadline=Deadline(600)) is None


def test_a_reply_that_is_arriving_extends_the_deadline(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.deadline.MAX_EXTENSION", 1000)
    monkeypatch.setattr("holdfast.store.connection.GRACE", PATIENCE)
    monkeypatch.setattr("holdfast.store.connection._POLL_INTERVAL", PATIENCE)

    def answer(command: list[bytes]) -> Iterator[bytes]:
        if command[0] == b"GET":
            yield b"*2\r\n"
            eventually(lambda: deadline.has_passed)
            yield b":1\r\n"
        yield b"+OK\r\n"

    with outages.answering(answer) as url, running(how, Address.find(url)) as call:
        call("execute", "PING")
        deadline = Deadline(0.2)
        assert call("execute", "GET", "x", deadline=deadline) == [1, b"OK"]


def test_a_command_that_is_being_sent_extends_the_deadline(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.deadline.MAX_EXTENSION", 1000)
    monkeypatch.setattr("holdfast.store.connection.GRACE", PATIENCE)
    monkeypatch.setattr("holdfast.store.connection._POLL_INTERVAL", PATIENCE)
    deadlines: list[Deadline] = []

    def answer(command: list[bytes]) -> Iterator[bytes]:
        yield b"+OK\r\n"
        if command[0] == b"PING":  # the next command is not read until its time is over
            eventually(lambda: deadlines and deadlines[0].has_passed)

    with outages.answering(answer) as url, running(how, Address.find(url)) as call:
        call("execute", "PING")
        deadlines.append(Deadline(0.2))
        assert call("execute", "ECHO", b"x" * (32 << 20), deadline=deadlines[0]) == b"OK"


def test_a_reply_that_trickles_in_is_not_waited_for_without_end(how: str) -> None:
    def answer(command: list[bytes]) -> Iterator[bytes]:
        if command[0] == b"GET":
            yield b"$500000000\r\n"
            while not is_over.wait(0.01):  # it is slow, and not silent
                yield b"x"
        yield b"+OK\r\n"

    is_over = threading.Event()
    with outages.answering(answer) as url, running(how, Address.find(url)) as call:
        call("execute", "PING")
        stuck = threading.Timer(PATIENCE, is_over.set)
        stuck.start()
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.1 s"):
            call("execute", "GET", "x", deadline=Deadline(0.1))
        assert not is_over.is_set()
        is_over.set()
        stuck.cancel()


def test_a_command_that_trickles_out_is_not_waited_for_without_end(how: str) -> None:
    def read_slowly() -> None:
        while not is_over.wait(0.001):
            theirs.recv(1000)

    is_over = threading.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        reading, stuck = threading.Thread(target=read_slowly), threading.Timer(PATIENCE, is_over.set)
        reading.start()
        stuck.start()
        with pytest.raises(TimeoutError):
            _exchange(how, ours, ("ECHO", b"x" * (64 << 20)), Deadline(0.1))
        assert not is_over.is_set()
        is_over.set()
        stuck.cancel()
        reading.join()


@pytest.mark.parametrize("size", [50_000, 300_000], ids=["one part", "several parts"])
def test_a_command_that_goes_out_in_pieces_arrives_whole(how: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.store.connection._POLL_INTERVAL", 0.001
    )  # so each piece is cut off where the other end stands still

    def read_at_times() -> None:
        while len(arrived) < len(wanted):
            arrived.extend(theirs.recv(size // 5))
            select.select([], [], [], 0.005)  # the other end stands still
        theirs.sendall(b"+OK\r\n")

    command: tuple[Any, ...] = ("ECHO", bytes(range(250)) * (size // 250))
    arrived, wanted = bytearray(), hiredis.pack_command(command)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        reading = threading.Thread(target=read_at_times)
        reading.start()
        assert _exchange(how, ours, command, Deadline(PATIENCE)) == b"OK"
        reading.join()
    assert arrived == wanted


def _exchange(how: str, sock: socket.socket, parts: tuple[Any, ...], deadline: Deadline) -> Any:
    """Say something on a line that somebody else has connected."""
    parser = SimpleNamespace(parse_error=HoldfastError)

    async def use() -> Any:
        reader, writer = await asyncio.open_connection(sock=sock)
        line = AsyncConnection(SimpleNamespace(_reader=reader, _writer=writer, _parser=parser))
        try:
            return await line.exchange(parts, deadline)
        finally:
            line.close()
            await line.closed

    if how == "async":
        return asyncio.run(use())
    return Connection(SimpleNamespace(_sock=sock, _parser=parser, disconnect=sock.close)).exchange(parts, deadline)


class _Green(socket.socket):
    """A socket as gevent has them: what it waits for is a loop of its own, and only Python's time-out ends that."""

    def recv(self, *args: Any) -> bytes:
        assert self.gettimeout() is not None
        return super().recv(*args)


def test_a_socket_that_is_not_pythons_own_waits_no_longer_than_it_may() -> None:
    ours, theirs = socket.socketpair()
    with theirs, _Green(fileno=ours.detach()) as green, pytest.raises(TimeoutError):
        _exchange("sync", green, ("PING",), Deadline(0.1))


def test_a_url_that_asks_for_another_protocol_gets_ours(how: str, server_url: str, namespace: str) -> None:
    with running(how, Address.find(f"{server_url}?protocol=3", namespace=namespace)) as call:
        assert call("execute", "CONFIG", "GET", "port") == [b"port", b"0"]  # the other would answer with a map


def test_a_command_is_not_repeated_when_its_answer_may_be_forgotten(
    server_url: str, namespace: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.deadline.RESEND_WINDOW", 0)
    with outages.losing_a_reply(server_url) as url, running(how, Address.find(url, namespace=namespace)) as call:
        with pytest.raises(StoreUnavailable) as caught:
            call("run", commands.enqueue([job("a")], fresh=True).within(Deadline(PATIENCE)))
        assert caught.value.maybe_done
        assert call("run", commands.count()) == 1


def test_something_is_done_while_the_server_works(call: Callable[..., Any]) -> None:
    call("execute", "PING")
    done: list[int] = []

    def work() -> None:
        while not deadline.has_passed:  # which does not count
            pass
        done.append(deadline.unanswered)

    deadline = Deadline(0.5, on_sent=work)
    assert [call("execute", "ECHO", word, deadline=deadline) for word in ("a", "b")] == [b"a", b"b"]
    assert done == [1]


def test_connections_are_reused(how: str, switch: Switch) -> None:
    switch.on()
    with running(how, Address.find(switch.url)) as use:
        for _ in range(50):
            use("run", commands.count())
            use("execute", "RPUSH", "list", "x")
            use("execute", "BLPOP", "list", 30, blocks=30)
        assert use("execute", "INFO", "stats")["total_connections_received"] < 5


class _Late:
    """Echoes what it receives; with `late` not before `may_answer` is set."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def answer(self, command: list[bytes]) -> bytes:
        if command == [b"ECHO", b"late"]:
            self.asked.set()
            self.may_answer.wait(PATIENCE)
        return b"+%b\r\n" % command[-1]


def test_the_reply_to_a_timed_out_command_reaches_no_other_command(how: str) -> None:
    late = _Late()
    with outages.answering(late.answer) as url, running(how, Address.find(url)) as call:
        assert call("execute", "ECHO", "first") == b"first"
        with pytest.raises(StoreUnavailable, match="did not answer"):
            call("execute", "ECHO", "late", deadline=Deadline(0.1))
        assert call("execute", "ECHO", "next", deadline=Deadline(PATIENCE, on_sent=late.may_answer.set)) == b"next"


def test_the_reply_to_a_cancelled_command_reaches_no_other_command() -> None:
    late = _Late()

    async def use(url: str) -> None:
        store = AsyncStore(Address.find(url))
        assert await store.execute("ECHO", "first") == b"first"
        asking = asyncio.create_task(store.execute("ECHO", "late"))
        await asyncio.to_thread(late.asked.wait, PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        deadline = Deadline(PATIENCE, on_sent=late.may_answer.set)
        assert await store.execute("ECHO", "next", deadline=deadline) == b"next"
        await store.close()

    with outages.answering(late.answer) as url:
        asyncio.run(use(url))


@pytest.mark.parametrize("steps", range(12))
def test_a_command_may_be_cancelled_at_any_moment_and_others_get_their_own_replies(
    address: Address, steps: int
) -> None:
    async def use() -> None:
        store = AsyncStore(address)
        for number in range(20):
            sent = [asyncio.create_task(store.execute("ECHO", f"{number}.{place}")) for place in range(5)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in sent[::2]:
                task.cancel()
            replies = await asyncio.gather(*sent, return_exceptions=True)
            for place, reply in enumerate(replies):
                cancelled = isinstance(reply, asyncio.CancelledError) and place % 2 == 0
                assert cancelled or reply == f"{number}.{place}".encode()
        await store.close()

    asyncio.run(use())


def test_closing_interrupts_commands_in_flight_which_are_retried(address: Address) -> None:
    async def use() -> None:
        store, other = AsyncStore(address), AsyncStore(address)
        key = address.key + ":closing"

        async def blocked() -> set[str]:
            return set(re.findall(r"\bid=(\d+) [^\n]* cmd=blpop ", (await other.execute("CLIENT", "LIST")).decode()))

        closed: set[str] = set()
        waiting = asyncio.create_task(store.execute("BLPOP", key, 30, blocks=30))
        for _ in range(2):
            while not (new := await blocked() - closed):
                await asyncio.sleep(0)
            await store.close()
            closed |= new
        while await blocked() & closed:  # until the server notices that they are closed, it may give them the element
            await asyncio.sleep(0)
        await other.execute("RPUSH", key, "x")
        assert await waiting == (key.encode(), b"x")
        await store.close()
        await other.close()

    asyncio.run(use())


def test_nothing_is_open_when_a_store_was_closed(address: Address) -> None:
    loop = asyncio.new_event_loop()
    store = AsyncStore(address)

    async def use() -> None:
        await asyncio.gather(*(store.run(commands.count()) for _ in range(3)))
        await store.close()

    loop.run_until_complete(use())
    loop.close()
    gc.collect()  # an unclosed connection would say so now


def test_a_cancelled_close_still_closes_everything(address: Address) -> None:
    complaints: list[dict[str, Any]] = []

    async def use() -> None:
        loop, store = asyncio.get_running_loop(), AsyncStore(address)
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        await asyncio.gather(*(store.run(commands.count()) for _ in range(3)))
        pool = store._state().pool
        assert pool is not None
        connections = list(pool._open)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [connection._transport.is_closing() for connection in connections] == [True] * 3
        while pool._open:
            await asyncio.sleep(0)

    asyncio.run(use())
    assert complaints == []


class _Raced(list[Any]):
    """A list from which another thread takes the last item whenever one was seen in it."""

    def __bool__(self) -> bool:
        return True


def test_closing_does_not_mind_another_thread_that_takes_a_connection(address: Address) -> None:
    store = Store(address)
    store.run(commands.count())
    assert store._pool is not None
    connections = store._pool._connections
    connections._idle = _Raced(connections._idle)
    store.close()


@pytest.mark.parametrize("steps", range(0, 30, 3))
def test_a_store_that_is_closed_while_it_connects_keeps_nothing_open(address: Address, steps: int) -> None:
    async def use() -> None:
        store = AsyncStore(address)
        asking = asyncio.create_task(store.execute("ECHO", "a"))
        for _ in range(steps):
            await asyncio.sleep(0)
        await store.close()
        assert await asking == b"a"
        await store.close()

    asyncio.run(use())
    gc.collect()


@pytest.mark.parametrize("steps", [3, 6, 9])
def test_an_event_loop_that_stands_still_while_it_connects_gets_some_more_time(
    address: Address, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.connection.GRACE", PATIENCE)

    async def use() -> None:
        store, deadline = AsyncStore(address), Deadline(1)
        asking = asyncio.create_task(store.execute("ECHO", "a", deadline=deadline))
        for _ in range(steps):
            await asyncio.sleep(0)
        eventually(lambda: deadline.has_passed)
        threading.Event().wait(2 * LATE)
        assert await asking == b"a"
        await store.close()

    asyncio.run(use())


def test_a_connection_that_broke_while_idle_does_not_make_a_command_maybe_done(switch: Switch, how: str) -> None:
    switch.on()
    with running(how, Address.find(switch.url)) as call:
        call("run", commands.count())
        switch.off()
        with pytest.raises(StoreUnavailable) as caught:
            call("run", commands.enqueue([job("a")]))
        assert not caught.value.maybe_done
