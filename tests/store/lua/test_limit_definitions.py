"""Limits that are declared, overridden and expire; slots that are released; who holds and who is parked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast import Limit, errors
from holdfast.job.outcome import Succeed
from holdfast.store import Command, commands
from holdfast.store.commands import LimitKey, LimitStatus, ListReply
from holdfast.store.store import Store
from holdfast.units import utc
from tests.conftest import TestClock
from tests.store.lua.test_limits import check
from tests.store.lua.test_state_machine import ONE, TWO, end, fields, put, standing, take

HOUR = 3_600_000


def declare(store: Store, slots: int, *, per: int = 0, revision: int = 0, name: str = "api") -> str:
    return store.run(commands.declare_limit(name, slots, per=per, revision=revision))


def status(store: Store, name: str = "api") -> LimitStatus:
    [found] = [row for row in store.run(commands.limits()).limits if row.name == name]
    return found


# Declarations and overrides


def test_a_declared_limit_applies(store: Store) -> None:
    assert declare(store, 1) == "applied"
    assert declare(store, 1) == "unchanged"
    put(store, "a", "b", limits=("api",))

    assert take(store, limit=10) == ["a"]

    assert status(store) == LimitStatus("api", 1, 0, 1, 1, 1, False, None, Limit("api", 1), 0)
    assert declare(store, 2, revision=1) == "applied"  # a deploy: who is parked may start
    assert take(store, limit=10) == ["b"]


def test_an_override_outlives_workers_and_deploys_until_it_is_reset(store: Store) -> None:
    declare(store, 5, per=1000, revision=1)
    assert store.run(commands.set_limit("api", 1))

    assert declare(store, 5, per=1000, revision=1) == "unchanged"
    assert declare(store, 9, revision=2) == "overridden"

    found = status(store)
    assert (found.slots, found.per, found.is_overridden) == (1, 0, True)
    assert (found.declared, found.revision) == (Limit("api", 9), 2)
    put(store, "a", "b", limits=("api",))
    assert take(store, limit=10) == ["a"]
    assert store.run(commands.reset_limit("api"))
    assert not store.run(commands.reset_limit("api"))
    assert (status(store).slots, status(store).is_overridden) == (9, False)
    assert take(store, limit=10) == ["b"]


def test_a_limit_that_is_set_to_what_is_declared_is_an_override_too(store: Store) -> None:
    declare(store, 5)
    assert store.run(commands.set_limit("api", 5))
    assert not store.run(commands.set_limit("api", 5))

    declare(store, 9)

    assert status(store).slots == 5


def test_what_was_set_before_it_was_declared_is_an_override(store: Store) -> None:
    store.run(commands.set_limit("api", 2))
    with pytest.raises(errors.WrongState, match="limit api is not declared by an app: remove it instead"):
        store.run(commands.reset_limit("api"))

    assert declare(store, 5) == "overridden"

    assert (status(store).slots, status(store).is_overridden) == (2, True)
    assert store.run(commands.reset_limit("api"))
    assert status(store).slots == 5


def test_an_older_release_does_not_replace_a_newer_declaration(store: Store) -> None:
    declare(store, 5, revision=2)
    store.run(commands.set_limit("api", 1))

    for _ in range(2):
        with pytest.raises(errors.WrongState, match="limit api was declared by a newer release, revision 2"):
            declare(store, 3, revision=1)
        store.run(commands.reset_limit("api"))

    assert status(store).slots == 5


def test_a_limit_that_is_removed_is_gone_until_it_is_declared_again(store: Store) -> None:
    declare(store, 1, revision=3)
    store.run(commands.set_limit("api", 1, ttl=HOUR))
    put(store, "a", "b", limits=("api",))
    take(store)

    assert store.run(commands.remove_limit("api"))

    assert take(store, limit=10) == ["b"]
    assert not status(store).is_defined  # b has used it
    assert declare(store, 1, revision=1) == "applied"
    assert status(store).declared == Limit("api", 1)


def test_no_more_than_a_thousand_limits_are_declared(store: Store) -> None:
    for number in range(1000):
        declare(store, 1, name=f"limit-{number}")
    with pytest.raises(errors.Invalid, match="already 1000 limits"):
        declare(store, 1)
    assert declare(store, 2, name="limit-0") == "applied"


# Limits that expire


def test_an_override_expires_and_parked_jobs_start(store: Store, clock: TestClock) -> None:
    declare(store, 2)
    store.run(commands.set_limit("api", 1, ttl=HOUR))
    put(store, "a", "b", "c", limits=("api",))
    assert take(store, limit=10) == ["a"]
    assert status(store).expires_at == utc(clock.now + HOUR)

    clock.now += HOUR - 1
    store.run(commands.renew("node/one", [commands.Lease(ONE, "a", 1)], executors=[ONE]))
    assert take(store, TWO, limit=10) == []
    clock.now += 1

    assert take(store, TWO, limit=10) == ["b"]
    found = status(store)
    assert (found.slots, found.is_set, found.expires_at, found.declared) == (2, False, None, Limit("api", 2))


def test_a_definition_that_expires_leaves_the_limit_undefined(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, ttl=1000))
    put(store, "a", "b", limits=("api",))
    take(store)
    clock.now += 1000

    assert store.run(commands.upkeep()).before == 1

    assert standing(store)["waiting"] == ["b"]
    assert store.run(commands.limit_names()) == ([], [])


def test_setting_a_limit_again_changes_its_expiry(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, ttl=1000))
    assert store.run(commands.set_limit("api", 1, ttl=5000))
    clock.now += 1000
    store.run(commands.upkeep())
    assert status(store).expires_at == utc(clock.now + 4000)

    assert store.run(commands.set_limit("api", 1))  # for good

    clock.now += 10_000
    store.run(commands.upkeep())
    assert (status(store).slots, status(store).expires_at) == (1, None)


def test_a_declaration_does_not_change_an_expiry(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, ttl=1000))
    declare(store, 5)
    assert status(store).expires_at == utc(clock.now + 1000)
    clock.now += 1000
    store.run(commands.upkeep())

    assert status(store).slots == 5


def test_the_missing_timer_of_an_expiry_is_set_again(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    store.run(commands.set_limit("api", 1, ttl=HOUR))
    client.delete(f"hf:{{{namespace}}}:timers")
    clock.now += 2000

    store.run(commands.upkeep())

    assert client.zscore(f"hf:{{{namespace}}}:timers", "=api") == clock.now - 2000 + HOUR


def test_a_damaged_record_of_a_limit_is_as_if_it_was_not_defined(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    client.hset(f"hf:{{{namespace}}}:limits", "api", "garbage")
    put(store, "a", "b", limits=("api",))
    assert take(store, limit=10) == ["a", "b"]
    clock.now += 2000
    store.run(commands.upkeep())
    assert not status(store).is_defined

    assert declare(store, 1) == "applied"
    assert status(store).slots == 1


@pytest.mark.parametrize(
    "record",
    [
        "",
        "0 0 0",
        "9999999 0 0",
        "5 999999999999999999999 0",
        "1 0 0 9999999 0 0",
        "1 0 - 5 999999999999999999999 0",
        "1 0 999999999999999999999 5 0 0",
        "1 0 0 5 0 999999999999999999999",
    ],
)
def test_a_damaged_record_is_listed_and_replaced_and_holds_back_no_jobs(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, record: str
) -> None:
    declare(store, 1)
    put(store, "a", "b", limits=("api",))
    assert take(store, limit=10) == ["a"]
    client.hset(f"hf:{{{namespace}}}:limits", "api", record)

    is_defined = status(store).is_defined
    for _ in range(3):
        clock.now += 2000
        store.run(commands.upkeep())

    assert is_defined == record.startswith("1 ")
    assert take(store, limit=10) == ([] if is_defined else ["b"])
    assert store.run(commands.set_limit("api", 3))
    assert status(store).slots == 3
    assert store.run(commands.remove_limit("api"))


# Slots that are released


def test_a_slot_that_is_released_goes_to_the_next_and_is_not_released_again(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "a", "b", "c", limits=("gpu:0",))
    assert take(store, limit=10) == ["a"]

    assert store.run(commands.release_slot("gpu:0", "a"))

    assert take(store, TWO, limit=10) == ["b"]
    assert fields(store, "a", "state") == ("running",)
    assert [note[2] for note in fields(store, "a", "notes")[0]] == [b"its slot of limit gpu:0 was released"]
    end(store, "a", Succeed(b"1"))
    assert take(store, TWO, limit=10) == []  # b holds the slot
    assert store.run(commands.limit_keys("gpu")) == [LimitKey("gpu:0", 1, 1)]
    check(store, client, namespace)


def test_only_a_slot_that_is_held_is_released(store: Store) -> None:
    store.run(commands.set_limit("gpu", 1))
    store.run(commands.set_limit("api", 1, per=1000))
    put(store, "a", limits=("gpu:0", "api"))
    put(store, "b", limits=("gpu:0",))
    take(store, limit=10)

    for limit, id in (("gpu:0", "b"), ("gpu", "a"), ("gpu:1", "a"), ("gpu:0", "none")):
        with pytest.raises(errors.WrongState, match=f"job {id} does not hold a slot of limit {limit}"):
            store.run(commands.release_slot(limit, id))
    with pytest.raises(errors.WrongState, match="limit api counts starts per period"):
        store.run(commands.release_slot("api", "a"))


def test_a_repeated_release_gets_the_same_reply(store: Store) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "a", "b", "c", limits=("gpu",))
    take(store, limit=10)
    command = commands.release_slot("gpu", "a")

    assert store.run(command)
    assert store.run(command)

    assert standing(store)["throttled"] == ["c"]


# Who holds and who is parked


def ids(store: Store, page: Callable[..., Command[ListReply]], limit: str, size: int) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        reply = store.run(page(limit, limit=size, cursor=cursor))
        found += [job["id"] for job in reply.jobs]
        cursor = reply.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("size", [1, 2, 100])
def test_holders_and_parked_jobs_are_listed_per_key_in_pages(store: Store, size: int) -> None:
    store.run(commands.set_limit("api", 2))
    put(store, "a1", "a2", "a3", "a4", limits=("api:a",))
    put(store, "z1", "z2", queue="other", limits=("api:a",))
    put(store, "first", limits=("api:a",), priority=-1)
    put(store, "plain", limits=("api",))
    put(store, "b1", limits=("api:b",))
    put(store, "dash", limits=("api-x",))
    assert sorted(take(store, ONE, "q", "other", limit=20)) == ["a1", "b1", "dash", "first", "plain"]

    keys: list[LimitKey] = []
    while page := store.run(commands.limit_keys("api", after=keys[-1].limit if keys else None, limit=size)):
        assert len(page) <= size
        keys += page
    assert keys == [LimitKey("api", 1, 0), LimitKey("api:a", 2, 5), LimitKey("api:b", 1, 0)]
    assert [key.key for key in keys] == [None, "a", "b"]
    assert ids(store, commands.limit_holders, "api:a", size) == ["a1", "first"]
    assert ids(store, commands.limit_holders, "api", size) == ["plain"]
    assert ids(store, commands.limit_parked, "api:a", size) == ["z1", "z2", "a2", "a3", "a4"]  # `other` comes first
    assert ids(store, commands.limit_parked, "api:b", size) == []
    assert (status(store).held, status(store).parked, status(store).keys) == (4, 5, 1)


def test_thousands_of_keys_are_counted_in_parts(store: Store) -> None:
    store.run(commands.set_limit("api", 1))
    store.run(commands.set_limit("zoo", 1))
    for key in range(2600):
        for queue in ("q", "r"):
            put(store, f"{queue}{key}.1", f"{queue}{key}.2", queue=queue, limits=(f"api:{key:04}",))
    while store.run(commands.count(states=["waiting"])):
        take(store, ONE, "q", "r", limit=1000)

    first = store.run(commands.limits())
    assert first.after == "api:2499"  # 5,000 pairs of a key and a queue
    assert [row.name for row in first.limits] == ["api"]
    second = store.run(commands.limits(first.after))
    assert second.after is None
    assert [row.name for row in second.limits] == ["api", "zoo"]
    parts = [page.limits[0] for page in (first, second)]
    assert {(row.keys, row.held) for row in parts} == {(2600, 2600)}
    assert sum(row.parked for row in parts) == 3 * 2600
    assert len(store.run(commands.limit_keys("api", limit=1000))) == 1000
    assert store.run(commands.limit_keys("api", after="api:2598")) == [LimitKey("api:2599", 1, 3)]
