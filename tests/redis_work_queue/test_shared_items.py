"""Items in the keys of redis-work-queue: put, claim, renew, complete and clean, beside clients of both versions.

`document.WorkQueue` is a client written from the document; `OldWorkQueue` is version 0.1.5.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, LeaseLost
from holdfast.items.item import NoItem
from holdfast.redis_work_queue import cleaning
from holdfast.redis_work_queue.shared_item import SharedItem
from holdfast.redis_work_queue.shared_items import SharedItems
from holdfast.store import commands
from redis_work_queue import Item, KeyPrefix
from redis_work_queue import WorkQueue as OldWorkQueue
from tests.model import invariants
from tests.redis_work_queue.document import WorkQueue
from tests.support.servers import running_server
from tests.support.workers import until

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")  # by version 0.1.5
LISTS = ("queue", "processing", "cleaning")


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()
    with redis.Redis.from_url(server_url) as client:
        invariants.check(client, namespace)


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


@pytest.fixture
def prefix(namespace: str, client: redis.Redis) -> Iterator[str]:
    """A prefix with every character that a pattern of SCAN could take for something else."""
    made = f"[{namespace}]*?\\^-a"
    yield made
    escaped = "".join(f"\\{c}" if c in "[]*?^\\" else c for c in made)
    if keys := list(client.scan_iter(f"{escaped}:*", count=10_000)):
        client.delete(*keys)


@pytest.fixture
def items(app: Holdfast, prefix: str) -> SharedItems:
    return app.items("thumbs", protocol="redis-work-queue", prefix=prefix)


@pytest.fixture
def document(client: redis.Redis, prefix: str) -> WorkQueue:
    return WorkQueue(client, prefix)


@pytest.fixture
def old(prefix: str) -> OldWorkQueue:
    return OldWorkQueue(KeyPrefix(prefix))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look twice without the second in between: nothing moves meanwhile, unless a test moves it."""
    monkeypatch.setattr(cleaning, "PAUSE", 0)


def got(items: SharedItems, **options: Any) -> SharedItem:
    item = items.claim(**options)
    assert not isinstance(item, NoItem)
    return item


def lists(client: redis.Redis, prefix: str) -> dict[str, list[bytes]]:
    db: Any = client
    return {name: found for name in LISTS if (found := db.lrange(f"{prefix}:{name}", 0, -1))}


def expire(client: redis.Redis, prefix: str, id: str) -> None:
    """Let the leases of an item expire."""
    client.delete(f"{prefix}:lease:{id}", f"{prefix}:leased_by_session:{id}")


def dump(client: redis.Redis, prefix: str) -> dict[bytes, bytes]:
    db: Any = client
    keys = [key for key in db.scan_iter(count=1000) if key.startswith(prefix.encode() + b":")]
    return {key: db.dump(key) for key in keys if not is_of_ended(db, key)}


def is_of_ended(db: Any, key: bytes) -> bool:
    """Whether a key is the lease that an ended item keeps for ten seconds."""
    is_lease = b":leased_by_session:" in key and db.type(key) == b"string"
    return is_lease and db.get(key) == b"ended" and 0 < db.pttl(key) <= 10_000


# Put


def test_put_stores_an_item_once_until_it_is_complete(
    items: SharedItems, document: WorkQueue, client: redis.Redis, prefix: str
) -> None:
    assert items.put(b"one", id="a") == ("a", True)
    assert items.put(b"two", id="a") == ("a", False)
    assert lists(client, prefix) == {"queue": [b"a"]}
    assert client.get(f"{prefix}:item:a") == b"one"
    document.add("a", b"three")
    assert items.length() == 1
    assert got(items).complete()
    assert items.put(b"two", id="a") == ("a", True)


def test_put_many_stores_in_order_and_each_id_once(items: SharedItems) -> None:
    stored = items.put_many([b"x", ("a", b"1"), (b"\xff\0", b"2"), ("a", b"3")])
    assert [each.created for each in stored] == [True, True, True, False]
    assert [item.payload for item in items.claim_many(10)] == [b"x", b"1", b"2"]
    assert len(items.put_many((f"{n}", b"") for n in range(2500))) == 2500
    assert items.length() == 2500


def test_fresh_items_are_not_looked_up(items: SharedItems) -> None:
    assert items.put(b"1", id="a", fresh=True).created
    assert items.put(b"2", id="a", fresh=True).created
    assert items.length() == 2
    assert got(items).payload == b"2"
    assert not items.claim()  # the copy is dropped
    assert items.length() == 0


def test_an_item_has_any_bytes_and_any_size(items: SharedItems) -> None:
    data = bytes(range(256)) * 20_000
    for given in (b"\xff\xfe", b"", b"a b\n*"):
        items.put(data, id=given)
    for id in ("\udcff\udcfe", "", "a b\n*"):
        item = got(items)
        assert (item.id, item.payload) == (id, data)
        item.renew()
        assert item.complete()


# Claim


def test_items_are_claimed_in_the_order_in_which_both_sides_add_them(
    items: SharedItems, document: WorkQueue, old: OldWorkQueue, client: redis.Redis
) -> None:
    items.put(b"1", id="a")
    document.add("b", b"2")
    old.add_item(client, Item(b"3", id="c"))
    assert [(item.id, item.payload) for item in items.claim_many(5)] == [("a", b"1"), ("b", b"2"), ("c", b"3")]
    assert (items.length(), items.in_progress()) == (0, 3)


def test_a_claim_sets_the_leases_of_both_versions(items: SharedItems, client: redis.Redis, prefix: str) -> None:
    items.put(b"", id="a")
    item = got(items, lease="20s")
    for name in ("lease", "leased_by_session"):
        assert client.get(f"{prefix}:{name}:a") == item.held.session.encode()
        assert 10_000 < client.pttl(f"{prefix}:{name}:a") <= 20_000


def test_a_claim_waits_and_leaves_the_item_to_whoever_is_first(items: SharedItems, document: WorkQueue) -> None:
    assert not items.claim(wait="20ms")
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(items.claim, wait="10s") for _ in range(3)]
        for number in range(3):
            document.add(str(number), b"")
        claimed = [each.result() for each in waiting]
    assert sorted(item.id for item in claimed if item) == ["0", "1", "2"]


def test_ids_without_data_are_dropped(items: SharedItems, client: redis.Redis, prefix: str) -> None:
    client.lpush(f"{prefix}:queue", *[f"gone-{n}" for n in range(1500)])
    items.put(b"", id="a")
    assert got(items, wait="5s").id == "a"
    assert lists(client, prefix) == {"processing": [b"a"]}


def test_an_id_that_a_cleaner_put_back_too_early_stays_with_its_holder(
    items: SharedItems, document: WorkQueue, old: OldWorkQueue, client: redis.Redis, prefix: str
) -> None:
    for holder in ("document", "old"):
        document.add("a", b"data")
        leased: Any = document.lease(10, 1) if holder == "document" else old.lease(client, 10, timeout=1)
        client.lrem(f"{prefix}:processing", 0, "a")  # a cleaner that looked before the lease was set
        client.lpush(f"{prefix}:queue", "a")
        assert not items.claim()
        assert lists(client, prefix) == {"processing": [b"a"]}
        assert document.complete("a") if holder == "document" else old.complete(client, leased)
        assert dump(client, prefix) == {}


def test_a_claim_whose_reply_was_lost_gets_the_same_items_again(app: Holdfast, items: SharedItems) -> None:
    items.put_many([("a", b"1"), ("b", b"2")])
    command = commands.work_queue_claim(items.prefix, "session1", limit=1, lease=5000)
    assert app.store.run(command) == app.store.run(command) == (False, [(b"a", b"1")])
    assert items.length() == 1
    assert app.store.run(commands.work_queue_complete(items.prefix, b"a", "session1", token="t1"))  # noqa: S106
    assert app.store.run(commands.work_queue_complete(items.prefix, b"a", "session1", token="t1"))  # noqa: S106
    assert app.store.run(command) == (False, [])


# Renew, complete, release


def test_complete_is_true_once_and_leaves_nothing(items: SharedItems, client: redis.Redis, prefix: str) -> None:
    items.put(b"", id="a")
    item = got(items)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: item.complete(), range(8))).count(True) == 1
    assert dump(client, prefix) == {}


def test_a_lease_of_another_session_forbids_everything(
    items: SharedItems, document: WorkQueue, old: OldWorkQueue, client: redis.Redis, prefix: str
) -> None:
    for version in ("document", "old"):
        items.put(b"", id="a")
        item = got(items)
        expire(client, prefix, "a")
        assert items.clean() == 1
        other: Any = document.lease(10, 1) if version == "document" else old.lease(client, 10, timeout=1)
        before = dump(client, prefix)
        with pytest.raises(LeaseLost):
            item.renew()
        assert item.is_lost
        assert not item.complete()
        assert got_nothing(items)
        assert dump(client, prefix) == before
        assert document.complete("a") if version == "document" else old.complete(client, other)


def got_nothing(items: SharedItems) -> bool:
    return isinstance(items.claim(), NoItem)


def test_an_expired_lease_is_renewed_while_nobody_has_touched_the_item(
    items: SharedItems, client: redis.Redis, prefix: str
) -> None:
    items.put(b"", id="a")
    item = got(items)
    expire(client, prefix, "a")
    item.renew()
    assert client.get(f"{prefix}:lease:a") == item.held.session.encode()
    expire(client, prefix, "a")
    assert item.complete()


def test_complete_needs_both_the_data_and_the_place_in_processing(
    items: SharedItems, client: redis.Redis, prefix: str
) -> None:
    items.put_many([("a", b""), ("b", b"")])
    one, two = got(items), got(items)
    client.delete(f"{prefix}:item:a")  # a stale worker of the document completes without a lease, and dies
    assert not one.complete()
    client.lrem(f"{prefix}:processing", 0, "b")  # a worker of version 0.1.5 has won, and not deleted the data yet
    assert not two.complete()


def test_complete_removes_copies_that_version_0_1_5_would_run_again(
    items: SharedItems, old: OldWorkQueue, client: redis.Redis, prefix: str
) -> None:
    items.put(b"", id="a")
    item = got(items)
    client.lpush(f"{prefix}:queue", "a")
    client.lpush(f"{prefix}:cleaning", "a")
    assert item.complete()
    assert dump(client, prefix) == {}
    assert old.lease(client, 1, block=False) is None


def test_a_cleaner_of_0_1_5_does_not_put_back_what_has_just_ended(
    items: SharedItems, old: OldWorkQueue, client: redis.Redis, prefix: str
) -> None:
    items.put(b"", id="a")
    assert got(items).complete()
    client.lpush(f"{prefix}:cleaning", "a")  # a cleaner that had read it before
    with redirect_stdout(io.StringIO()):
        old.light_clean(client)
    assert lists(client, prefix) == {}
    client.lpush(f"{prefix}:cleaning", "a")
    assert items.put(b"new", id="a").created  # and the id can be used again at once
    assert got(items).payload == b"new"


def test_a_released_item_is_the_next(items: SharedItems) -> None:
    items.put_many([("a", b""), ("b", b"")])
    item = got(items)
    assert item.release()
    assert not item.release()
    assert [each.id for each in items.claim_many(5)] == ["a", "b"]


def test_the_end_of_a_block_completes_and_an_exception_leaves_the_item_to_its_lease(
    items: SharedItems, client: redis.Redis, prefix: str
) -> None:
    items.put_many([("a", b""), ("b", b"")])
    with items.claim() as item:
        assert item
    with pytest.raises(KeyError), items.claim():
        raise KeyError
    assert lists(client, prefix) == {"processing": [b"b"]}
    assert items.clean() == 0
    expire(client, prefix, "b")
    assert items.clean() == 1
    with pytest.raises(KeyboardInterrupt), items.claim():
        raise KeyboardInterrupt
    assert lists(client, prefix) == {"queue": [b"b"]}


def test_leases_are_renewed_inside_with_and_released_at_its_end(
    items: SharedItems, client: redis.Redis, prefix: str
) -> None:
    items.put_many([("a", b""), ("b", b"")])
    with items:
        first = got(items, lease="1s")
        until(lambda: client.pttl(f"{prefix}:lease:a") < 800)
        until(lambda: client.pttl(f"{prefix}:lease:a") > 900, what="a renewal")
        second = got(items, lease="1s")
        client.set(f"{prefix}:leased_by_session:b", "somebody else")
        until(lambda: second.is_lost, what="the heartbeat to see that a lease was lost")
    assert first.is_lost
    assert lists(client, prefix) == {"queue": [b"a"], "processing": [b"b"]}


def test_a_token_renews_and_ends_an_item_in_another_process(app: Holdfast, items: SharedItems) -> None:
    items.put_many([("a", b""), ("b", b"")])
    token, other = got(items).detach(), got(items).detach()
    elsewhere = app.items("thumbs", protocol="redis-work-queue", prefix=items.prefix)
    elsewhere.renew(token)
    assert elsewhere.complete(token)
    with pytest.raises(LeaseLost):
        elsewhere.complete(token)
    assert elsewhere.release(other)
    with pytest.raises(Invalid, match="belongs to an item with the prefix"):
        app.items("thumbs", protocol="redis-work-queue", prefix="other").complete(token)
    with pytest.raises(Invalid, match="expected the token"):
        elsewhere.complete("item_" + token)


def test_every_method_has_an_async_twin(app: Holdfast, items: SharedItems) -> None:
    async def use() -> None:
        async with items:
            await items.aput(b"1", id="a")
            await items.aput_many([("b", b"2")])
            async with await items.aclaim(wait="1s", lease="1s") as item:
                assert item
                await item.arenew()
            (other,) = await items.aclaim_many(5)
            assert await other.arelease()
            assert (await items.alength(), await items.ain_progress()) == (1, 0)
            token = await got_async(await items.aclaim())
            await items.arenew(token)
            assert await items.acomplete(token)
            assert await items.aclean(deep=True) == 0
            assert not await items.aclaim(wait="10ms")
        await app.aclose()

    async def got_async(item: SharedItem | NoItem) -> str:
        assert not isinstance(item, NoItem)
        return await item.adetach()

    asyncio.run(use())


# Clean


def test_a_clean_puts_back_what_has_no_lease_and_leaves_the_rest(
    items: SharedItems, document: WorkQueue, old: OldWorkQueue, client: redis.Redis, prefix: str
) -> None:
    for id in ("ours", "theirs", "old", "crashed", "gone"):
        document.add(id, b"")
    got(items)
    assert document.lease(10, 1)
    assert old.lease(client, 10, timeout=1)
    for _ in range(2):
        client.rpoplpush(f"{prefix}:queue", f"{prefix}:processing")  # and died before the lease
    client.delete(f"{prefix}:item:gone")
    assert items.clean() == 1
    assert lists(client, prefix) == {"queue": [b"crashed"], "processing": [b"old", b"theirs", b"ours"]}
    for id in ("ours", "theirs", "old"):
        expire(client, prefix, id)
    assert items.clean() == 3
    assert items.clean() == 0
    assert items.length() == 4


def test_a_clean_never_takes_an_item_that_is_leased_between_its_two_looks(
    items: SharedItems, document: WorkQueue, client: redis.Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.store import Action

    def lease_meanwhile(_: float) -> Action[None]:
        async def never() -> None:
            raise AssertionError

        return Action(lambda: client.set(document.lease_key("a"), document.session, px=9000) and None, never)

    document.add("a", b"")
    client.rpoplpush(f"{prefix}:queue", f"{prefix}:processing")  # between the pop and the lease
    monkeypatch.setattr(cleaning, "sleep", lease_meanwhile)
    assert items.clean(deep=True) == 0
    assert lists(client, prefix) == {"processing": [b"a"]}


@pytest.mark.parametrize("step", range(1, 5))
def test_a_clean_finishes_the_work_of_a_cleaner_of_0_1_5_that_died(
    items: SharedItems, old: OldWorkQueue, client: redis.Redis, prefix: str, step: int
) -> None:
    db: Any = client
    items.put(b"", id="a")
    client.rpoplpush(f"{prefix}:queue", f"{prefix}:processing")
    done: list[Callable[[], Any]] = [
        lambda: db.lpush(f"{prefix}:cleaning", "a"),
        lambda: db.lrem(f"{prefix}:processing", 0, "a"),
        lambda: db.lpush(f"{prefix}:queue", "a"),
        lambda: db.lrem(f"{prefix}:cleaning", 0, "a"),
    ]
    for each in done[:step]:
        each()
    items.clean()
    assert lists(client, prefix) == {"queue": [b"a"]}
    assert got(items).complete()
    with redirect_stdout(io.StringIO()):
        old.light_clean(client)
    assert dump(client, prefix) == {}


def test_an_ended_item_in_cleaning_does_not_come_back(items: SharedItems, client: redis.Redis, prefix: str) -> None:
    client.lpush(f"{prefix}:cleaning", "a")
    assert items.clean() == 0
    assert dump(client, prefix) == {}


def test_a_deep_clean_finds_what_is_in_no_list(items: SharedItems, client: redis.Redis, prefix: str) -> None:
    items.put_many([(f"w{n}", b"") for n in range(1200)])
    got(items)
    for n in range(1200):
        client.set(f"{prefix}:item:lost-{n}", b"")
    client.set(f"{prefix.replace('*', 'x')}:item:of-another-queue", b"")
    client.set(f"{prefix}:lease:lost-0", "a session")
    assert items.clean() == 0
    assert items.clean(deep=True) == 1199
    assert items.clean(deep=True) == 0
    assert (items.length(), items.in_progress()) == (1199 + 1199, 1)
    client.delete(f"{prefix.replace('*', 'x')}:item:of-another-queue")


def test_cleaners_at_the_same_time_put_an_item_back_once(items: SharedItems, client: redis.Redis, prefix: str) -> None:
    items.put_many([(f"{n}", b"") for n in range(300)])
    items.claim_many(300)
    for n in range(300):
        expire(client, prefix, f"{n}")
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda deep: items.clean(deep=deep), (False, True, False, True))) == 300
    assert items.length() == 300


# What is refused


CALLS: dict[str, Callable[[SharedItems, str], Any]] = {
    "claim": lambda items, _: items.claim(),
    "put": lambda items, _: items.put(b"3", id="a"),
    "length": lambda items, _: items.length(),
    "clean": lambda items, _: items.clean(deep=True),
    "complete": lambda items, token: items.complete(token),
    "renew": lambda items, token: items.renew(token),
}


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        *[(name, "claim put length clean complete renew") for name in LISTS],
        ("item:b", "claim"),
        ("item:a", "put complete"),
        ("lease:a", "complete renew"),
        ("leased_by_session:a", "complete renew"),
        ("lease:b", "claim"),
    ],
)
def test_a_key_of_the_wrong_type_is_named_and_nothing_changes(
    items: SharedItems, client: redis.Redis, prefix: str, name: str, calls: str
) -> None:
    items.put_many([("a", b"1"), ("b", b"2")])
    token = got(items).detach()
    client.delete(f"{prefix}:{name}")
    client.hset(f"{prefix}:{name}", "x", "y")
    before = dump(client, prefix)
    for call in calls.split():
        with pytest.raises(Invalid, match="holds a hash, not a") as refused:
            CALLS[call](items, token)
        assert f":{name} is not part of a redis-work-queue" in str(refused.value)
        assert dump(client, prefix) == before


def test_a_cluster_is_refused() -> None:
    with running_server(cluster=True) as url:
        app = Holdfast(url)
        items = app.items("thumbs", protocol="redis-work-queue")
        for call in (items.claim, items.length, items.clean, lambda: items.put(b"")):
            with pytest.raises(Invalid, match="cannot be used on a cluster"):
                call()
        app.close()


def test_arguments_are_checked(app: Holdfast, items: SharedItems) -> None:
    calls: list[tuple[Any, str]] = [
        (lambda: app.items("a", protocol="other"), "unknown protocol 'other'"),  # type: ignore[call-overload]
        (lambda: app.items("a", prefix="p"), "prefix needs a protocol"),  # type: ignore[call-overload]
        (lambda: app.items("a", protocol="redis-work-queue", prefix=3), "expected a prefix"),  # type: ignore[call-overload]
        (lambda: items.put("text"), "as bytes, got str"),  # type: ignore[arg-type]
        (lambda: items.put(b"", id=3), "expected an id"),  # type: ignore[arg-type]
        (lambda: items.put_many([("a", b"", b"")]), "got a tuple of 3"),  # type: ignore[list-item]
        (lambda: items.claim(lease="1ms"), "lease"),
        (lambda: items.claim_many(0), "limit"),
    ]
    for call, words in calls:
        with pytest.raises(Invalid, match=words):
            call()
    assert app.items("thumbs", protocol="redis-work-queue").prefix == b"thumbs"
