"""Subscriptions in the store: a delivery enqueues jobs and moves the position together, or does nothing."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.store import commands
from holdfast.store.commands import Command
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import job, put, standing

BATCH = {"queue": "alerts", "task": "alert"}
ONE, TWO = "node/one", "node/two"


def declare(store: Store, name: str = "alert", *, revision: int = 0, start: str = "now", spec: str = "{}") -> bool:
    return store.run(commands.declare_subscription(name, spec, BATCH, revision, start))


def known(store: Store, name: str = "alert") -> dict[str, Any]:
    [found] = store.run(commands.subscriptions([name]))
    return found


def lease(store: Store, worker: str, *names: str, length: int = 15_000) -> list[str]:
    return [held.name for held in store.run(commands.lease_subscriptions(names or ["alert"], worker, length))]


def deliver(store: Store, *ids: str, expected: str, position: str = "9-9", name: str = "alert") -> tuple[str, bool]:
    return store.run(commands.deliver(name, ONE, expected, position, [(id, b'{"event":{}}') for id in ids]))


def test_a_new_subscription_begins_now_or_with_what_is_kept(store: Store) -> None:
    declare(store, "empty")
    assert known(store, "empty")["position"] == "0-0"
    put(store, "a")
    last = store.run(commands.events()).position
    declare(store, "late")
    declare(store, "early", start="start")
    assert known(store, "late")["position"] == last
    assert known(store, "early")["position"] == "start"


def test_a_subscription_that_is_declared_again_keeps_its_position(store: Store) -> None:
    assert declare(store)
    put(store, "a")
    assert not declare(store)
    assert declare(store, spec='{"changed":1}', start="start")
    assert (known(store)["position"], known(store)["spec"]) == ("0-0", '{"changed":1}')


def test_the_order_of_options_is_no_change(store: Store) -> None:
    options = {
        "keep": False,
        "priority": -1,
        "task": "alert",
        "queue": "video",
        "fields": {"b": "1", "a": "2"},
        "tags": ["x", "w"],
    }
    declare = commands.declare_subscription
    assert store.run(declare("alert", "{}", options, 0, "now"))
    for names in permutations(["keep", "priority", "task", "queue"]):
        again = {name: options[name] for name in names} | options
        assert not store.run(declare("alert", "{}", again, 0, "now"))
    assert store.run(declare("alert", "{}", {**options, "tags": ["w", "x"]}, 0, "now"))


def test_an_older_release_does_not_replace_a_declaration(store: Store) -> None:
    declare(store, revision=2)
    with pytest.raises(errors.WrongState, match="newer release"):
        declare(store, revision=1, spec="{ }")
    assert known(store)["spec"] == "{}"


def test_a_delivery_enqueues_and_moves_at_once(store: Store) -> None:
    declare(store)
    assert deliver(store, "on:alert@1-0", "on:alert@2-0", expected="0-0", position="2-0") == ("2-0", True)
    assert standing(store) == {"waiting": ["on:alert@1-0", "on:alert@2-0"]}
    assert job(store, "on:alert@1-0")["payload"] == b'{"event":{}}'
    assert (known(store)["delivered"], known(store)["job"]) == ("2", "on:alert@2-0")


def test_a_delivery_that_somebody_has_overtaken_does_nothing(store: Store) -> None:
    declare(store)
    deliver(store, "on:alert@1-0", expected="0-0", position="1-0")
    assert deliver(store, "on:alert@other", expected="0-0", position="5-0") == ("1-0", False)
    assert standing(store) == {"waiting": ["on:alert@1-0"]}


def test_a_repeated_delivery_does_nothing(store: Store) -> None:
    declare(store)
    command = commands.deliver("alert", ONE, "0-0", "1-0", [("on:alert@1-0", b"{}")])
    assert store.run(command) == ("1-0", True)
    assert store.run(command) == ("1-0", False)
    assert known(store)["delivered"] == "1"


def test_a_position_moves_without_jobs(store: Store) -> None:
    declare(store)
    assert deliver(store, expected="0-0", position="7-0") == ("7-0", True)
    assert standing(store) == {}
    assert "delivered" not in known(store)


def test_a_delivery_that_the_store_refuses_does_not_move_the_position(store: Store) -> None:
    declare(store)
    with pytest.raises(errors.TooBig):
        store.run(commands.deliver("alert", ONE, "0-0", "1-0", [("on:alert@1-0", b"x" * (1 << 20) + b"x")]))
    assert known(store)["position"] == "0-0"
    assert standing(store) == {}


def test_a_full_server_refuses_a_delivery_and_moves_nothing(store: Store, client: redis.Redis) -> None:
    declare(store)
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(errors.StoreFull):
            deliver(store, "on:alert@1-0", expected="0-0")
    finally:
        client.config_set("maxmemory", "0")
    assert known(store)["position"] == "0-0"


def test_one_worker_at_a_time_holds_a_subscription(store: Store, clock: TestClock) -> None:
    declare(store)
    assert lease(store, ONE) == ["alert"]
    assert lease(store, TWO) == []
    clock.advance(10)
    assert lease(store, ONE) == ["alert"]
    clock.advance(14.9)
    assert lease(store, TWO) == []
    clock.advance(0.1)
    assert lease(store, TWO) == ["alert"]
    assert lease(store, ONE) == []


def test_a_lease_that_is_given_back_is_free_at_once(store: Store) -> None:
    declare(store)
    lease(store, ONE)
    assert lease(store, TWO, length=0) == []
    assert lease(store, TWO) == []  # it was not its to give
    lease(store, ONE, length=0)
    assert lease(store, TWO) == ["alert"]


def test_a_lease_of_a_clock_that_was_set_back_ends(store: Store, clock: TestClock) -> None:
    declare(store)
    lease(store, ONE)
    clock.advance(-86_400)
    assert lease(store, TWO) == ["alert"]


def test_a_paused_subscription_delivers_nothing_and_goes_on_where_it_stopped(store: Store) -> None:
    declare(store)
    assert store.run(commands.pause_subscription("alert"))
    assert not store.run(commands.pause_subscription("alert"))
    [held] = store.run(commands.lease_subscriptions(["alert"], ONE, 1000))
    assert held.is_paused
    assert deliver(store, "on:alert@1-0", expected="0-0") == ("0-0", False)
    assert store.run(commands.resume_subscription("alert"))
    assert deliver(store, "on:alert@1-0", expected="0-0") == ("9-9", True)


def test_a_subscription_that_is_removed_is_gone(store: Store) -> None:
    declare(store)
    assert store.run(commands.unsubscribe("alert"))
    assert not store.run(commands.unsubscribe("alert"))
    assert store.run(commands.subscriptions()) == []
    assert lease(store, ONE) == []
    with pytest.raises(errors.SubscriptionNotFound):
        deliver(store, expected="0-0")
    with pytest.raises(errors.SubscriptionNotFound):
        store.run(commands.pause_subscription("alert"))


def test_subscriptions_are_listed_by_name_in_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        declare(store, name)
    assert [row["name"] for row in store.run(commands.subscriptions())] == ["a", "b", "c"]
    assert [row["name"] for row in store.run(commands.subscriptions(after="a"))] == ["b", "c"]


@pytest.mark.parametrize(
    ("function", "args", "blobs"),
    [
        ("declare_subscription", {"name": "a b", "spec": "", "batch": BATCH}, ()),
        ("declare_subscription", {"name": "a", "batch": BATCH}, ()),
        ("declare_subscription", {"name": "a", "spec": "", "batch": {**BATCH, "unique": "x"}}, ()),
        ("declare_subscription", {"name": "a", "spec": "", "batch": BATCH, "start": "tomorrow"}, ()),
        ("lease_subscriptions", {"names": ["a"], "worker": "nobody", "lease": 1}, ()),
        ("lease_subscriptions", {"names": ["a"], "worker": ONE, "lease": -1}, ()),
        ("deliver", {"name": "a", "worker": ONE, "expected": "1-0", "position": "2-0"}, (b"x y", b"{}")),
        ("deliver", {"name": "a", "worker": ONE, "expected": "1-0", "position": "2-0"}, (b" ".join([b"x"] * 101),)),
        ("deliver", {"name": "a", "worker": ONE, "expected": "1-0", "position": "2" * 99}, ()),
        ("deliver", {"name": "a", "worker": ONE, "expected": "1-0", "position": "nonsense"}, ()),
        ("deliver", {"name": "a", "worker": ONE, "position": "2-0"}, ()),
        ("subscriptions", {"names": ["a b"]}, ()),
    ],
)
def test_nonsense_is_refused(store: Store, function: str, args: dict[str, Any], blobs: tuple[bytes, ...]) -> None:
    with pytest.raises(errors.Invalid):
        store.run(Command(function, args, lambda reply: reply, blobs))


def read_on(store: Store, name: str = "alert") -> list[str]:
    return [event.type for event in store.run(commands.events(known(store, name)["position"])).events]


def test_a_subscription_whose_position_is_damaged_begins_with_a_gap(store: Store, client: redis.Redis) -> None:
    declare(store)
    put(store, "a")
    store.run(commands.pause_subscription("alert"))
    client.hset(store.address.key.replace(":meta", ":on:alert"), "position", "nonsense")
    assert declare(store)
    types = read_on(store)
    assert types[0] == "gap"
    assert types[-1] == "configured"
    assert known(store)["paused"] == "1"


def test_a_subscription_that_the_store_lost_begins_with_a_gap(store: Store) -> None:
    declare(store, "lost", start="gap")
    assert known(store, "lost")["position"] == "0-1"
    put(store, "a")
    assert read_on(store, "lost")[:2] == ["gap", "configured"]


def test_workers_see_since_when_the_store_has_its_data(store: Store, client: redis.Redis, clock: TestClock) -> None:
    def since(arrivals: int = 0) -> int:
        return store.run(commands.renew(ONE, [], arrivals=arrivals)).since

    put(store, "a")
    began = clock.now
    clock.advance(1)
    assert since() == since() == began
    assert since(arrivals=1000) == clock.now  # its last writes are gone
    assert since(arrivals=1000) == clock.now
    client.delete(*client.keys(store.address.key.replace(":meta", ":*")))
    clock.advance(1)
    assert since() == clock.now
