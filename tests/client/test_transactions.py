"""Enqueue inside a transaction of another client: jobs are stored if and only if its EXEC runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.connection import UnixDomainSocketConnection
from redis.retry import Retry

from holdfast import Holdfast, HoldfastError, Invalid, JobExists, NotFound, StoreUnavailable, TooBig
from holdfast.task.task import Task
from tests.support.servers import running_server


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def _ship(article: str) -> str:
    return article


@pytest.fixture
def ship(app: Holdfast) -> Task[[str], str]:
    return app.task(name="ship", queue="mail", tags=["order"])(_ship)


@pytest.fixture(params=[False, True], ids=["bytes", "text"])
def client(request: pytest.FixtureRequest, app: Holdfast) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(app.url, decode_responses=request.param) as made:
        yield made


def test_jobs_are_stored_with_the_transaction(app: Holdfast, ship: Task[[str], str], client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        pipe.incr(app.key("sold"))
        queued = app.enqueue_with(pipe, ship.bind("pen"), ship.options(delay="1h").bind("ink"))
        pipe.incr(app.key("sold"))
        assert (app.count(), client.exists(app.key("sold"))) == (0, 0)
        replies = pipe.execute()
    jobs = queued.jobs(replies)
    assert (replies[0], replies[2], [job.id for job in jobs]) == (1, 2, queued.ids)
    assert [(job.state, job.created, job.queue, job.tags) for job in jobs] == [
        ("waiting", True, "mail", ("order",)),
        ("scheduled", True, "mail", ("order",)),
    ]
    assert [job.refresh().state for job in jobs] == ["waiting", "scheduled"]


def test_nothing_is_stored_if_a_watched_key_has_changed(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis
) -> None:
    stock = app.key("stock")
    client.set(stock, 1)
    with client.pipeline() as pipe:
        pipe.watch(stock)
        with pytest.raises(Invalid, match=r"call its multi\(\) first"):
            app.enqueue_with(pipe, ship.bind("pen"))
        pipe.multi()
        pipe.decr(stock)
        app.enqueue_with(pipe, ship.bind("pen"))
        client.set(stock, 0)
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert (app.count(), int(client.get(stock) or 0)) == (0, 0)
    with client.pipeline() as pipe:
        pipe.watch(stock)
        pipe.multi()
        queued = app.enqueue_with(pipe, ship.bind("pen"))
        (job,) = queued.jobs(pipe.execute())
    assert job.refresh().state == "waiting"


def test_nothing_is_stored_if_the_transaction_is_discarded(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis
) -> None:
    with client.pipeline() as pipe:
        app.enqueue_with(pipe, ship.bind("pen"))
        pipe.reset()
    with client.pipeline() as pipe:
        app.enqueue_with(pipe, ship.bind("pen"))
        pipe.execute_command("NO-SUCH-COMMAND")
        with pytest.raises(redis.ResponseError):
            pipe.execute()
    assert app.count() == 0


def test_an_async_client_and_an_async_app(app: Holdfast, ship: Task[[str], str]) -> None:
    async def use() -> None:
        client = redis.asyncio.Redis.from_url(app.url)
        stock = app.key("stock")
        await client.set(stock, 3)
        async with client.pipeline() as pipe:
            pipe.decr(stock)
            queued = await app.aenqueue_with(pipe, ship.bind("pen"))
            assert await app.acount() == 0
            (job,) = await queued.ajobs(await pipe.execute())
        assert (await job.arefresh()).state == "waiting"
        async with client.pipeline() as pipe:
            await pipe.watch(stock)
            with pytest.raises(Invalid, match="multi"):
                await app.aenqueue_with(pipe, ship.bind("pen"))
            pipe.multi()
            await app.aenqueue_with(pipe, ship.bind("pen"))
            await client.incr(stock)
            with pytest.raises(redis.WatchError):
                await pipe.execute()
        assert await app.acount() == 1
        async with client.pipeline(transaction=False) as pipe:
            with pytest.raises(Invalid, match="not a transaction"):
                await app.aenqueue_with(pipe, ship.bind("pen"))
        await client.aclose()
        await app.aclose()

    asyncio.run(use())


def test_what_is_no_transaction_or_elsewhere_is_refused(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis, server_url: str
) -> None:
    other = redis.Redis.from_url(f"{server_url}?db=3")
    for pipe, words in (
        (client, "expected a pipeline"),
        (object(), "expected a pipeline"),
        (client.pipeline(transaction=False), "not a transaction"),
        (other.pipeline(), "database 3, but the jobs are in database 0"),
    ):
        with pytest.raises(Invalid, match=words):
            app.enqueue_with(pipe, ship.bind("pen"))  # type: ignore[arg-type]
    other.close()
    with client.pipeline() as pipe:
        with pytest.raises(Invalid, match="expected 1 to 1000 calls, got 0"):
            app.enqueue_with(pipe)
        with pytest.raises(Invalid, match="expected a bound call"):
            app.enqueue_with(pipe, ship)  # type: ignore[arg-type]
        assert len(pipe) == 0


def test_what_the_store_would_refuse_is_not_added(app: Holdfast, ship: Task[[str], str], client: redis.Redis) -> None:
    app.enqueue(ship.options(id="a").bind("pen"))
    with client.pipeline() as pipe:
        for options, error in (
            ({"id": "a", "on_exists": "error"}, JobExists),
            ({"after": ["none"]}, NotFound),
            ({"batch": "none"}, NotFound),
        ):
            with pytest.raises(error):
                app.enqueue_with(pipe, ship.options(**options).bind("pen"))
        with pytest.raises(TooBig):
            app.enqueue_with(pipe, ship.bind("x" * (1 << 20)))
        assert len(pipe) == 0
    assert app.count() == 1


def test_existing_jobs_and_dependents_are_returned_as_they_are(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis
) -> None:
    first = app.enqueue(ship.options(unique="one").bind("pen"))
    with client.pipeline() as pipe:
        queued = app.enqueue_with(
            pipe, ship.options(unique="one").bind("ink"), ship.options(after=[first.id], id="b").bind("ink")
        )
        one, two = queued.jobs(pipe.execute())
    assert (one.id, one.created) == (first.id, False)
    assert (two.id, two.state) == ("b", "blocked")


def test_what_changes_between_the_check_and_exec_is_an_error_of_its_own(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis
) -> None:
    with client.pipeline() as pipe:
        queued = app.enqueue_with(pipe, ship.options(id="a", on_exists="error").bind("pen"))
        pipe.incr(app.key("n"))
        app.enqueue(ship.options(id="a").bind("other"))
        replies = pipe.execute(raise_on_error=False)
    assert replies[1] == 1
    with pytest.raises(JobExists, match="job a already exists"):
        queued.jobs(replies)
    wrongs: list[Any] = [[], None, [5], [[]], [[b"x", 1]], [[1, 1, 1]]]
    for wrong in wrongs:
        with pytest.raises(Invalid):
            queued.jobs(wrong)


def test_jobs_that_depend_on_each_other_are_added_in_one_call(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis
) -> None:
    calls = ship.options(id="a").bind("pen"), ship.options(id="b", after=["a"]).bind("ink")
    with client.pipeline() as pipe:
        app.enqueue_with(pipe, calls[0])
        with pytest.raises(NotFound, match="store it before, or in the same call"):
            app.enqueue_with(pipe, calls[1])
    with client.pipeline() as pipe:
        queued = app.enqueue_with(pipe, *calls)
        assert [job.state for job in queued.jobs(pipe.execute())] == ["waiting", "blocked"]


def test_a_client_of_another_server_is_told_so(app: Holdfast, ship: Task[[str], str]) -> None:
    with running_server() as url, redis.Redis.from_url(url) as other, other.pipeline() as pipe:
        queued = app.enqueue_with(pipe, ship.bind("pen"))
        with pytest.raises(HoldfastError, match="it is another server than that of the app"):
            queued.jobs(pipe.execute(raise_on_error=False))


def test_the_library_is_loaded_before_the_transaction(namespace: str) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        app = Holdfast(url, namespace=namespace)
        ship = app.task(name="ship")(_ship)
        for _ in range(2):
            with client.pipeline() as pipe:
                queued = app.enqueue_with(pipe, ship.bind("pen"))
                assert queued.jobs(pipe.execute())[0].created
            client.function_flush()
        app.close()


class LosesReply(UnixDomainSocketConnection):  # type: ignore[misc] # of redis-py, which has no types here
    """A connection that breaks when the reply of a transaction arrives."""

    is_ready = False

    def read_response(self, *args: Any, **options: Any) -> Any:
        reply = super().read_response(*args, **options)
        if self.is_ready:
            self.disconnect()
            raise redis.ConnectionError("the reply was lost")
        return reply


def test_a_transaction_whose_reply_was_lost_is_repeated_with_the_same_calls(
    app: Holdfast, ship: Task[[str], str], client: redis.Redis
) -> None:
    call = ship.bind("pen")
    with client.pipeline() as pipe:
        app.enqueue_with(pipe, call)
        connection = LosesReply(path=app.url.removeprefix("unix://"), retry=Retry(NoBackoff(), 0))
        connection.connect()
        connection.is_ready = True
        with pytest.raises(redis.ConnectionError, match="the reply was lost"):
            pipe._execute_transaction(connection, pipe.command_stack, True)
    assert app.get(call.id).state == "waiting"
    with client.pipeline() as pipe:
        queued = app.enqueue_with(pipe, call)
        (job,) = queued.jobs(pipe.execute())
    assert (job.id, job.created, app.count()) == (call.id, False, 1)


def test_in_a_cluster_the_keys_of_a_transaction_are_in_one_slot(namespace: str) -> None:
    with running_server(cluster=True) as url:
        app = Holdfast(url, namespace=namespace)
        ship = app.task(name="ship")(_ship)
        with redis.Redis.from_url(url) as direct:
            port = int(direct.config_get("port")["port"])
            with direct.pipeline() as pipe:
                pipe.incr(app.key("n"))
                queued = app.enqueue_with(pipe, ship.bind("pen"))
                assert queued.jobs(pipe.execute())[0].created
        with redis.RedisCluster(host="127.0.0.1", port=port) as client:
            pipe = client.pipeline(transaction=True)
            pipe.incr(app.key("n"))
            queued = app.enqueue_with(pipe, ship.bind("pen"))
            replies = pipe.execute()
            assert (replies[0], queued.jobs(replies)[0].created) == (2, True)
            pipe = client.pipeline(transaction=True)
            app.enqueue_with(pipe, ship.bind("pen"))
            with pytest.raises(redis.exceptions.CrossSlotTransactionError, match="same slot"):
                pipe.incr("elsewhere").execute()
            with pytest.raises(Invalid, match="not a transaction"):
                app.enqueue_with(client.pipeline(), ship.bind("pen"))
        assert app.count() == 2
        app.close()


def test_an_unreachable_server_is_an_error_and_adds_nothing(client: redis.Redis, namespace: str) -> None:
    app = Holdfast("redis://127.0.0.1:1", namespace=namespace, timeout="0.2s", when_unreachable="outbox")
    ship = app.task(name="ship")(_ship)
    with client.pipeline() as pipe:
        with pytest.raises(StoreUnavailable):
            app.enqueue_with(pipe, ship.bind("pen"))
        assert len(pipe) == 0
