"""Pools: the store chooses between the queues of a pool, and looks only where jobs wait."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
import redis

from holdfast.client.queue_patterns import Patterns
from holdfast.constants import MIN_IDLE_WAIT
from holdfast.errors import Invalid
from holdfast.job.outcome import Advanced, Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.model.pools import set_id
from tests.store.lua.test_state_machine import ONE, THREE, TWO, ask, end, new, put, take, woken

ALL = "round-robin *"


def fill(store: Store, **counts: int) -> None:
    for queue, count in counts.items():
        put(store, *(f"{queue}{number}" for number in range(count)), queue=queue)


def queues_of(ids: list[str]) -> str:
    return "".join(id.rstrip("0123456789") for id in ids)


def take_all(store: Store, pool: str, limit: int = 1) -> str:
    """Claim until there is nothing. Returns the queues, in the order in which their jobs came."""
    came: list[str] = []
    while True:
        claim = store.run(commands.claim(ONE, ask(limit=limit, pool=pool)))
        came += [job.id for job in claim.jobs]
        if not claim.jobs and claim.wait != MIN_IDLE_WAIT:
            return queues_of(came)


# The order


@pytest.mark.parametrize(
    ("pool", "order"),
    [
        ("strict *", "aabbcc"),
        ("strict c *", "ccaabb"),
        ("strict b* *", "bbaacc"),
        ("strict * b", "aaccbb"),
        ("strict * !b", "aacc"),
        ("strict c a", "ccaa"),
        ("round-robin *", "abcabc"),
        ("round-robin * !a", "bcbc"),
        ("weighted a=2 *", "abcabc"),
        ("fair *", "abcabc"),
    ],
)
@pytest.mark.parametrize("limit", [1, 6])
def test_jobs_come_in_the_order_of_the_pool(store: Store, pool: str, order: str, limit: int) -> None:
    fill(store, b=2, a=2, c=2)
    came = take_all(store, pool, limit)
    if limit == 1:
        assert came[0] == order[0]
        assert ("strict" not in pool and Counter(came) == Counter(order)) or came == order
    else:
        assert Counter(came) == Counter(order)


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_jobs_come_in_the_proportion_of_the_weights(store: Store, limit: int) -> None:
    fill(store, a=60, b=60, c=60)
    came = [job for _ in range(42 // limit) for job in take(store, limit=limit, pool="weighted a=4 b=2 *")]
    assert Counter(queues_of(came)) == {"a": 24, "b": 12, "c": 6}


def test_a_new_queue_neither_waits_for_long_nor_has_saved_up_turns(store: Store) -> None:
    fill(store, a=50, b=50)
    assert Counter(queues_of([id for _ in range(20) for id in take(store, pool=ALL)])) == {"a": 10, "b": 10}
    fill(store, new=50)
    came = [id for _ in range(9) for id in take(store, pool=ALL)]
    assert Counter(id.rstrip("0123456789") for id in came) == {"a": 3, "b": 3, "new": 3}
    assert any(id.startswith("new") for id in came[:3])


def test_a_queue_that_is_empty_now_and_then_loses_no_turn_and_wins_none(store: Store) -> None:
    """One job at a time, of a queue with a tenth of the other's weight."""
    fill(store, a=200)
    put(store, "b0", queue="b")
    came: list[str] = []
    for number in range(110):
        taken = take(store, pool="weighted a=10 b=1")
        came += taken
        if taken[0].startswith("b"):
            put(store, f"b{number + 1}", queue="b")
    assert Counter(queues_of(came)) == {"a": 100, "b": 10}


def test_a_fair_pool_counts_the_running_jobs_of_all(store: Store) -> None:
    fill(store, slow=9, quick=9)
    assert len(take(store, TWO, "slow", limit=4)) == 4
    assert Counter(id.rstrip("0123456789") for id in take(store, limit=6, pool="fair *")) == {"quick": 5, "slow": 1}


# Which queues


def test_a_new_queue_is_found_without_being_listed(store: Store, client: redis.Redis, namespace: str) -> None:
    assert take(store, TWO, pool="strict video-* mail !video-test") == []
    put(store, "a", queue="video-test")
    put(store, "b", queue="other")
    assert woken(client, namespace) == []
    put(store, "c", queue="video-new")
    assert woken(client, namespace) == [TWO]
    assert take(store, TWO, pool="strict video-* mail !video-test", limit=9, idle=True) == ["c"]


def test_a_new_pool_finds_the_jobs_that_were_there_some_queues_at_a_time(store: Store) -> None:
    for first in range(0, 1200, 400):
        store.run(commands.enqueue([new(f"j{n}", queue=f"q{n:04}") for n in range(first, first + 400)]))
    claims, found = 0, 0
    while True:
        claim = store.run(commands.claim(ONE, ask(limit=100, pool=ALL)))
        claims, found = claims + 1, found + len(claim.jobs)
        if not claim.jobs and claim.wait != MIN_IDLE_WAIT:
            break
    assert found == 1200
    assert 12 < claims < 30


@pytest.mark.parametrize("pool", ["strict *", ALL, "fair *"])
def test_a_claim_of_a_pool_asks_no_queue_without_jobs(
    store: Store, client: redis.Redis, namespace: str, pool: str
) -> None:
    """However many queues there are."""
    client.zadd(f"hf:{{{namespace}}}:queues", {f"q{number:05}": 0 for number in range(10_000)})
    assert take_all(store, pool) == ""
    put(store, "a", queue="q05000")
    before = _commands(client)
    assert take(store, ONE, pool=pool, idle=True) == ["a"]
    assert take(store, ONE, pool=pool) == []
    assert take(store, ONE, pool=pool, idle=True) == []
    assert _commands(client) - before < 80


@pytest.mark.parametrize("pool", ["strict *", ALL, "weighted a=2 *", "fair *"])
def test_queues_that_became_empty_are_passed_in_few_commands(store: Store, client: redis.Redis, pool: str) -> None:
    assert take(store, pool=pool) == []
    store.run(commands.enqueue([new(f"j{number}", queue=f"q{number:03}") for number in range(100)]))
    assert len(take(store, pool=pool, limit=100)) == 100
    put(store, "last", queue="zzz")
    before = _commands(client)
    assert take_all(store, pool) == "last"
    assert _commands(client) - before < 300


def _commands(client: redis.Redis) -> int:
    return sum(row["calls"] for row in client.info("commandstats").values())


@pytest.mark.parametrize("pool", ["strict *", ALL, "fair *"])
def test_a_paused_queue_is_asked_when_it_is_resumed(store: Store, pool: str) -> None:
    fill(store, a=2, b=1)
    store.run(commands.pause("a"))
    assert take(store, limit=9, pool=pool) == ["b0"]
    assert take(store, limit=9, pool=pool) == []
    store.run(commands.resume("a"))
    assert take(store, limit=9, pool=pool) == ["a0", "a1"]


@pytest.mark.parametrize("pool", ["strict *", ALL, "fair *"])
@pytest.mark.parametrize("change", ["end", "advance", "configure", "lost"])
def test_a_queue_at_its_concurrency_is_asked_when_there_is_room(store: Store, pool: str, change: str) -> None:
    store.run(commands.configure("a", set={"concurrency": 1}))
    fill(store, a=3, b=1)
    assert sorted(take(store, limit=9, pool=pool)) == ["a0", "b0"]
    assert take(store, limit=9, pool=pool) == []
    if change == "end":
        end(store, "a0", Error(b"{}", "E", final=True))
    elif change == "advance":
        end(store, "a0", Advanced("next", {"queue": "c", "delay": 60_000}, b"[]"))
    elif change == "configure":
        store.run(commands.configure("a", set={"concurrency": 2}))
    else:
        store.run(commands.requeue_orphaned(executor=ONE))
    assert sorted(take(store, limit=9, pool=pool)) == (["a0", "b0"] if change == "lost" else ["a1"])


def test_a_job_that_cannot_be_read_keeps_no_other_from_its_turn(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    fill(store, a=1, b=3)
    record = f"hf:{{{namespace}}}:j:a0"
    head = client.hget(record, "h") or b""
    client.hset(record, "h", b"\x09" + head[1:])
    try:
        for pool in ("strict *", ALL, "fair *"):
            assert len(take(store, limit=1, pool=pool)) == 1
            assert take(store, limit=1, pool=pool + " !b") == []
    finally:
        client.hset(record, "h", head)


# Sets


def test_executors_of_a_pool_are_idle_once_however_many_queues_there_are(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    fill(store, a=1, b=1, c=1)
    assert len(take(store, limit=3, pool=ALL)) == 3
    assert take(store, ONE, pool=ALL) == []
    assert take(store, TWO, pool=ALL) == []
    assert take(store, THREE, "c", "a", "b") == []
    idle = invariants.read(client, namespace).idle
    assert {id: set(members) for id, members in idle.items()} == {
        set_id(ALL): {ONE, TWO},
        set_id("- a b c"): {THREE},
    }


def test_an_executor_of_the_queue_alone_is_woken_before_one_of_a_pattern(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    assert take(store, ONE, "q") == []
    clock.now += 1
    assert take(store, TWO, "q", "r") == []
    clock.now += 1
    assert take(store, THREE, pool=ALL) == []
    for executor in (ONE, TWO, THREE):
        put(store, f"for-{executor}")
        assert woken(client, namespace) == [executor]
    put(store, "for-nobody")
    assert woken(client, namespace) == []


def test_a_forgotten_queue_that_comes_back_finds_its_idle_executors(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    assert take(store, ONE, "q") == []
    assert store.run(commands.forget_queue("q")) is False
    store.run(commands.configure("q", set={"history": 7}))
    assert store.run(commands.forget_queue("q"))
    put(store, "a")
    assert woken(client, namespace) == [ONE]


def test_executors_that_are_gone_do_not_hide_those_of_other_sets(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    for number in range(50):
        assert take(store, f"node/gone.{number}", "q") == []
    clock.advance(15)
    assert take(store, TWO, pool=ALL) == []
    put(store, "a")
    assert woken(client, namespace) == [TWO]


def test_an_executor_of_a_pool_passes_on_the_wake_up_that_it_got(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    """The queue for which it was woken is behind more others than it looks at."""
    assert take(store, TWO, pool="strict *") == []
    put(store, "z", queue="z")
    fill(store, **{f"q{number:02}": 1 for number in range(20)})
    assert take(store, THREE, "none") == []
    client.rename(f"hf:{{{namespace}}}:idle:none", f"hf:{{{namespace}}}:idle:z")
    client.blpop([f"hf:{{{namespace}}}:wake:{TWO}"], timeout=1)

    assert take(store, TWO, pool="strict *", idle=True) == ["q000"]
    assert woken(client, namespace) == [THREE]


def test_a_set_that_nobody_uses_is_removed_and_comes_back_with_its_queues(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    assert take(store, pool=ALL) == []
    fill(store, a=1)
    clock.advance(601)
    assert take(store, TWO, "other") == []
    assert invariants.read(client, namespace).sets == {}

    assert take(store, pool=ALL) == ["a0"]
    assert list(invariants.read(client, namespace).sets) == [set_id(ALL)]


def test_a_set_that_is_used_is_kept(store: Store, clock: TestClock, client: redis.Redis, namespace: str) -> None:
    for _ in range(30):
        assert take(store, pool=ALL) == []
        clock.advance(45)
        assert take(store, TWO, "other") == []  # which removes what is not used
        assert list(invariants.read(client, namespace).sets) == [set_id(ALL)]


def test_of_too_many_sets_the_least_recently_used_are_removed(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    for number in range(1003):
        clock.now += 1
        assert take(store, ONE, "a", f"b{number}") == []
    sets = invariants.read(client, namespace).sets
    assert len(sets) == 1000
    assert set_id("- a b2") not in sets
    assert {set_id("- a b3"), set_id("- a b1002")} <= set(sets)


@pytest.mark.parametrize(
    "pool",
    [
        "", "strict", "best a", "- a", "strict a b|c", "strict a=0", "weighted a=1000001", "strict " + "x" * 101,
        "strict a | b", "strict " + " ".join(f"q{n}" for n in range(1001)), "strict a\nb\x00", "strict !", "strict ü",
    ],
)  # fmt: skip
def test_a_text_that_is_not_a_pool_is_refused(store: Store, pool: str) -> None:
    request = {"pool": pool, "counter": 1, "limit": 1}
    with pytest.raises(Invalid):
        store.run(commands.claim(ONE, request))


@pytest.mark.parametrize("more", [{"queues": ["a"]}, {"shares": [1]}, {"weights": [1]}])
def test_a_pool_excludes_other_ways_to_name_queues(store: Store, more: dict[str, list[object]]) -> None:
    with pytest.raises(Invalid, match="a pool has its own queues"):
        store.run(commands.claim(ONE, {"pool": ALL, "counter": 1, "limit": 1, **more}))


def test_a_lost_registry_is_restored_by_those_who_use_it(store: Store, client: redis.Redis, namespace: str) -> None:
    fill(store, a=1)
    assert take(store, pool=ALL) == ["a0"]
    base = f"hf:{{{namespace}}}:"
    client.delete(f"{base}sets", f"{base}set:{set_id(ALL)}", f"{base}ready:{set_id(ALL)}")
    client.hdel(f"{base}meta", "markers")
    put(store, "b0", queue="b")
    assert take(store, pool=ALL) == ["b0"]


def test_a_lost_text_is_restored_by_those_who_use_the_set(store: Store, client: redis.Redis, namespace: str) -> None:
    assert take(store, ONE, pool=ALL) == []
    client.delete(f"hf:{{{namespace}}}:set:{set_id(ALL)}")
    client.function_flush()  # what the server knows goes with the library
    put(store, "a0", queue="a")
    assert woken(client, namespace) == []
    assert take(store, ONE, pool=ALL) == ["a0"]
    assert take(store, ONE, pool=ALL) == []
    put(store, "b0", queue="b")
    assert woken(client, namespace) == [ONE]


def test_a_text_that_only_this_server_knows_is_stored_again(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    text = f"hf:{{{namespace}}}:set:{set_id(ALL)}"
    assert take(store, pool=ALL) == []
    client.delete(text)
    clock.advance(61)
    assert take(store, pool=ALL) == []
    assert client.get(text) == ALL.encode()


# Workers


def live(store: Store, *queues: str) -> list[int]:
    return [queue.workers for queue in store.run(commands.queues(list(queues))).queues]


def test_the_store_matches_patterns_as_the_client_does(store: Store) -> None:
    chance = random.Random(7)

    def word(letters: str, longest: int) -> str:
        return "".join(chance.choices(letters, k=chance.randint(1, longest)))

    names = sorted({word("ab.-", 5) for _ in range(200)})
    for number in range(100):
        entries = ["*" + word("ab.-**", 4), word("ab", 3) + "*" + word("ab*", 3), "!" + word("ab**", 3)]
        store.run(commands.renew(f"node/w{number}", [], queues=entries))
        served = Patterns({entry: 0 if entry.startswith("!") else 1 for entry in entries})
        assert live(store, *names) == [int(served.serves(name)) for name in names], entries
        store.run(commands.renew(f"node/w{number}", [], queues=[]))


def test_a_pattern_with_many_wildcards_does_not_hold_the_server(store: Store) -> None:
    store.run(commands.renew("node/w", [], queues=["*a" * 20 + "*b", "!" + "a*" * 20 + "c"]))
    began = time.monotonic()
    assert live(store, "a" * 100, "a" * 99 + "b", "a" * 99 + "c") == [0, 1, 0]
    assert time.monotonic() - began < 1


def test_workers_are_counted_for_each_queue_that_they_serve(store: Store, clock: TestClock) -> None:
    for worker, queues in {
        "n/one": ["a"],
        "n/two": ["b", "a"],
        "n/three": ["a", "b", "a"],
        "n/four": ["*", "!b"],
        "n/five": ["b*", "|", "*", "!b*"],
        "n/six": [],
    }.items():
        store.run(commands.renew(worker, [], queues=queues))
    assert live(store, "a", "b", "c") == [5, 3, 2]

    store.run(commands.renew("n/four", [], queues=["c"]))
    assert live(store, "a", "b", "c") == [4, 3, 2]
    store.run(commands.renew("n/five", [], queues=[]))
    assert live(store, "a", "b", "c") == [3, 2, 1]

    clock.advance(25)
    store.run(commands.renew("n/two", []))
    clock.advance(6)
    assert live(store, "a", "b", "c") == [1, 1, 0]
    store.run(commands.requeue_orphaned(worker="n/two"))
    assert live(store, "a", "b", "c") == [0, 0, 0]


@pytest.mark.parametrize("queues", [["a b"], ["|a"], [""], ["!"], ["a=1"], [1], [None], ["a"] * 1001, [["a"]], ["|"]])
def test_queues_of_a_worker_that_are_none_are_refused(store: Store, queues: list[str]) -> None:
    with pytest.raises(Invalid):
        store.run(commands.renew("n/one", [], queues=queues))


def test_workers_are_listed_in_pages_each_job_once(store: Store, clock: TestClock) -> None:
    put(store, *(f"j{number:04}" for number in range(950)))
    for executor, count in {"n/a.0": 450, "n/a.10": 290, "n/a.2": 1, "n/b.0": 209}.items():
        assert len(take(store, executor, limit=count)) == count
    for number in range(250):
        clock.now += number % 3
        store.run(commands.renew(f"n/{number:03}", []))
    for worker in ("n/a", "n/b"):
        store.run(commands.renew(worker, []))

    pages, cursor = [], None
    while cursor != "":
        page = store.run(commands.workers(cursor=cursor))
        assert len(page.workers) <= 101
        assert sum(len(worker.held) for worker in page.workers) <= 300
        pages.append(page)
        cursor = page.cursor
        if len(pages) == 2:
            store.run(commands.renew("n/000", []))  # seen already, and goes to the end
            end(store, "j0000", Succeed(b""), "n/a.0")

    names = Counter(worker.name for page in pages for worker in page.workers)
    held = Counter(job.id for page in pages for worker in page.workers for job in worker.held)
    assert set(names) == {f"n/{number:03}" for number in range(250)} | {"n/a", "n/b"}
    assert set(held.values()) == {1}
    assert len(held) == 949
