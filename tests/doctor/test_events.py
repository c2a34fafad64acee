"""The doctor: events that take much memory, and handlers that do not get theirs."""

from __future__ import annotations

from dataclasses import replace

import redis

from holdfast.constants import MAX_EVENT_BYTES
from holdfast.doctor import checks
from holdfast.doctor.probe import Undelivered, probe_server
from holdfast.doctor.result import Result
from holdfast.store import commands
from holdfast.store.store import Store
from tests.doctor.test_doctor import HEALTHY
from tests.store.lua.test_state_machine import put
from tests.store.lua.test_subscriptions import declare, known
from tests.support.consistency import client

__all__ = ["client"]

MINUTE = 60_000


def judge(store: Store) -> Result:
    return checks.subscriptions(probe_server(store))


def fall_behind(store: Store, client: redis.Redis, minutes: int) -> None:
    """Let the position of a subscription be older than the last event."""
    last = int(known(store)["last_event"].partition("-")[0])
    earlier = last - minutes * MINUTE
    subscription = store.address.key.replace(":meta", ":on:alert")
    client.hset(subscription, mapping={"position": f"{earlier}-0", "since": earlier})


def test_events_that_take_much_memory_are_a_note() -> None:
    assert checks.events(replace(HEALTHY, event_bytes=MAX_EVENT_BYTES // 2 - 1)).level == "ok"
    found = checks.events(replace(HEALTHY, event_bytes=MAX_EVENT_BYTES // 2))
    assert found.level == "note"
    assert "take 128 MiB: above 256 MiB" in found.means


def test_the_size_of_events_is_measured(store: Store) -> None:
    assert probe_server(store).event_bytes == 0
    declare(store)
    assert 100 < (probe_server(store).event_bytes or 0) < 100_000


def test_a_subscription_that_nobody_delivers_is_a_warning(store: Store, client: redis.Redis) -> None:
    put(store, "a")
    declare(store)
    assert judge(store).level == "ok"
    fall_behind(store, client, 9)
    assert judge(store).level == "ok"
    fall_behind(store, client, 75)
    found = judge(store)
    assert found.level == "warning"
    assert "subscription alert: no worker delivers it, 75 minutes behind" in found.means
    assert "holdfast subscriptions remove NAME" in found.advice
    client.hset(store.address.key.replace(":meta", ":on:alert"), "ends", 10**14)  # held by a worker
    assert "subscription alert: its worker is 75 minutes behind" in judge(store).means
    store.run(commands.pause_subscription("alert"))
    assert judge(store).level == "ok"


def test_a_damaged_subscription_is_a_warning_until_a_worker_declares_it(store: Store, client: redis.Redis) -> None:
    declare(store)
    client.hdel(store.address.key.replace(":meta", ":on:alert"), "position")
    assert "subscription alert is damaged" in judge(store).means
    declare(store)
    assert "damaged" not in judge(store).means


def test_many_subscriptions_are_not_all_named() -> None:
    found = tuple(Undelivered(f"s{number}", 700, is_held=False) for number in range(12))
    assert "and 2 more." in checks.subscriptions(replace(HEALTHY, undelivered=found)).means
