"""Schedules in the store: each time fires once, whichever call processes timers."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, keep, standing, take

BATCH = {"queue": "q", "task": "report"}
MINUTE = 60_000


def declare(store: Store, name: str = "nightly", **how: Any) -> bool:
    return store.run(commands.schedule(name, BATCH, b"[]", **how))


def declare_in_code(store: Store, revision: int, **how: Any) -> str:
    return store.run(commands.declare_schedule("nightly", BATCH, b"[]", revision, **how))


def known(store: Store, name: str = "nightly") -> dict[str, Any]:
    [found] = store.run(commands.schedules([name]))
    return found


def every(clock: TestClock, number: int, step: int = MINUTE, first: int = MINUTE) -> list[int]:
    return [clock.now + first + n * step for n in range(number)]


def fired(store: Store) -> list[str]:
    """The jobs that are there to be claimed; they succeed at once."""
    ids = take(store, limit=100)
    for id in ids:
        end(store, id, Succeed(b""))
    return ids


def test_an_interval_fires_at_its_offset_and_each_time_once(store: Store, clock: TestClock) -> None:
    declare(store, every=10_000, offset=3_000)
    ids = []
    for _ in range(40):
        clock.advance(1)
        ids += fired(store)
        assert take(store, "node/two.0", limit=10) == []

    times = [int(id.partition("@")[2]) for id in ids]
    assert len(times) == 4
    assert all(time % 10_000 == 3_000 for time in times)


def test_times_fire_in_order_and_workers_are_asked_for_more(store: Store, clock: TestClock) -> None:
    times = every(clock, 25)
    declare(store, times=times)
    assert keep(store, refills=5).refills == []

    for time in times[:6]:
        clock.now = time
        assert fired(store) == [f"nightly@{time}"]
    assert keep(store, refills=5).refills == ["nightly"]

    more = [time + 25 * MINUTE for time in times]
    assert store.run(commands.refill("nightly", times[-1], more))
    assert not store.run(commands.refill("nightly", times[-1], more))  # another worker was faster
    assert keep(store, refills=5).refills == []
    for time in [*times[6:], more[0]]:
        clock.now = time
        assert fired(store) == [f"nightly@{time}"]


@pytest.mark.parametrize(
    ("missed", "number"),
    [({}, 1), ({"missed": "all", "backlog": 3}, 3), ({"missed": "all"}, 10), ({"missed": "skip"}, 0)],
)
@pytest.mark.parametrize("kind", ["times", "every"])
def test_missed_times_fire_as_declared(
    store: Store, clock: TestClock, missed: dict[str, Any], number: int, kind: str
) -> None:
    hour = 60 * MINUTE
    how = {"times": every(clock, 40, hour, hour)} if kind == "times" else {"every": hour, "offset": clock.now + hour}
    declare(store, **how, **missed)

    clock.now += 10 * hour + 61_000  # ten are due, the last for a minute and a second

    ids = fired(store)
    assert len(ids) == number
    assert not ids or ids[-1] == f"nightly@{clock.now - 61_000}"
    clock.now += hour - 61_000
    assert len(fired(store)) == 1  # and it goes on


def test_overlap_skip_skips_a_time_while_the_last_job_has_not_ended(store: Store, clock: TestClock) -> None:
    declare(store, every=MINUTE, overlap="skip")
    clock.advance(60)
    [first] = take(store)
    clock.advance(10)
    keep(store, commands.Lease(ONE, first, 1))
    clock.advance(15)
    keep(store, commands.Lease(ONE, first, 1))
    clock.advance(25)
    keep(store, commands.Lease(ONE, first, 1))
    clock.advance(10)
    assert take(store) == []
    end(store, first, Succeed(b""))

    clock.advance(60)

    assert len(take(store)) == 1
    assert int(known(store)["skipped"]) >= 1


def test_jitter_is_the_same_for_the_same_time_and_within_its_bounds(store: Store, clock: TestClock) -> None:
    declare(store, times=every(clock, 30), jitter=50_000)
    lates = set()
    for time in every(clock, 20):
        clock.now = time
        take(store, ONE, "elsewhere")
        [found] = store.run(commands.get([f"nightly@{time}"], brief=True))
        assert found is not None
        lates.add((found["timer"] or time) - time)
    assert all(0 <= late <= 50_000 for late in lates)
    assert len(lates) > 10


def test_a_schedule_that_is_paused_fires_nothing_and_makes_up_for_nothing(store: Store, clock: TestClock) -> None:
    declare(store, times=every(clock, 40), missed="all")
    assert store.run(commands.pause_schedule("nightly"))
    clock.advance(600)
    assert take(store) == []

    assert store.run(commands.resume_schedule("nightly"))
    assert take(store) == []
    clock.advance(60)
    assert len(take(store, limit=5)) == 1


def test_trigger_enqueues_a_job_now(store: Store) -> None:
    declare(store, every=MINUTE)

    id = store.run(commands.trigger("nightly"))

    assert take(store) == [id]


def test_an_older_release_does_not_replace_a_newer_declaration(store: Store) -> None:
    assert declare_in_code(store, 2, every=MINUTE) == "applied"
    assert declare_in_code(store, 2, every=MINUTE) == "unchanged"
    with pytest.raises(errors.WrongState, match="newer release"):
        declare_in_code(store, 1, every=2 * MINUTE)
    assert declare_in_code(store, 3, every=2 * MINUTE) == "applied"


# Overrides


def test_a_schedule_made_by_hand_overrides_the_declared_one_until_it_is_reset(store: Store, clock: TestClock) -> None:
    declare_in_code(store, 1, every=MINUTE)
    assert declare(store, every=2 * MINUTE)
    assert known(store)["every"] == str(2 * MINUTE)

    assert declare_in_code(store, 1, every=MINUTE) == "unchanged"  # a worker starts
    assert declare_in_code(store, 2, every=5 * MINUTE) == "overridden"  # a deploy
    with pytest.raises(errors.WrongState, match="newer release"):
        declare_in_code(store, 1, every=MINUTE)
    assert known(store)["every"] == str(2 * MINUTE)
    assert (known(store)["default:every"], known(store)["default:revision"]) == (str(5 * MINUTE), "2")

    clock.now += 30_000
    assert store.run(commands.reset_schedule("nightly"))
    assert not store.run(commands.reset_schedule("nightly"))
    assert known(store)["every"] == str(5 * MINUTE)
    assert int(known(store)["next"]) % (5 * MINUTE) == 0
    assert not [field for field in known(store) if field.startswith("default:")]


def test_the_same_schedule_made_by_hand_overrides_the_declared_one_too(store: Store) -> None:
    declare_in_code(store, 1, every=MINUTE)

    assert declare(store, every=MINUTE)

    assert declare_in_code(store, 2, every=5 * MINUTE) == "overridden"
    assert known(store)["every"] == str(MINUTE)


def test_what_was_made_by_hand_before_it_was_declared_is_an_override(store: Store) -> None:
    declare(store, every=MINUTE)
    with pytest.raises(errors.WrongState, match="not declared by an app: remove it instead"):
        store.run(commands.reset_schedule("nightly"))

    assert declare_in_code(store, 0, times=[]) == "overridden"

    assert store.run(commands.reset_schedule("nightly"))
    assert "every" not in known(store)
    assert store.run(commands.upkeep(refills=5)).refills == ["nightly"]  # workers compute its times


def test_pauses_and_counts_outlive_overrides_and_missed_times_only_those_that_keep_the_times(
    store: Store, clock: TestClock
) -> None:
    declare_in_code(store, 0, every=MINUTE)
    clock.now += MINUTE
    take(store)
    assert known(store)["fired"] == "1"
    declare(store, every=MINUTE, missed="all")  # the same times, other policy
    clock.now += 3 * MINUTE

    store.run(commands.reset_schedule("nightly"))

    assert len(take(store, limit=10)) == 1  # it catches up on the last one, as it is declared
    assert (known(store)["fired"], known(store)["skipped"]) == ("2", "2")
    store.run(commands.pause_schedule("nightly"))
    declare(store, every=2 * MINUTE)
    store.run(commands.reset_schedule("nightly"))
    clock.now += 10 * MINUTE
    assert take(store, limit=10) == []
    assert known(store)["paused"] == "1"


def test_a_schedule_that_is_removed_forgets_its_declaration_until_a_worker_starts(store: Store) -> None:
    declare_in_code(store, 3, every=MINUTE)
    declare(store, every=2 * MINUTE)

    assert store.run(commands.unschedule("nightly"))

    assert store.run(commands.schedules()) == []
    assert declare_in_code(store, 1, every=MINUTE) == "applied"


def test_a_schedule_that_is_declared_again_by_every_worker_goes_on_as_it_was(store: Store, clock: TestClock) -> None:
    times = every(clock, 30)
    declare(store, times=times)
    clock.now = times[0]
    assert take(store) == [f"nightly@{times[0]}"]

    assert not declare(store, times=times)

    assert take(store) == []
    assert int(known(store)["fired"]) == 1


def test_a_schedule_is_removed_with_all_that_belongs_to_it(store: Store, clock: TestClock) -> None:
    declare(store, every=MINUTE)
    assert store.run(commands.unschedule("nightly"))
    assert not store.run(commands.unschedule("nightly"))
    clock.advance(600)

    assert take(store) == []
    assert standing(store) == {}
    assert store.run(commands.schedules()) == []


@pytest.mark.parametrize(
    "how", [{"every": 1}, {"times": [5, 3]}, {"times": ["x"]}, {"missed": "maybe"}, {"overlap": "no"}, {"jitter": -1}]
)
def test_a_bad_schedule_is_refused(store: Store, how: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid):
        declare(store, **{"every": MINUTE, **how} if "times" not in how else how)
    assert store.run(commands.schedules()) == []


def test_an_outage_longer_than_the_known_times_is_made_up_for_once(store: Store, clock: TestClock) -> None:
    times = [clock.now + number * 60_000 for number in range(1, 101)]
    declare(store, "minutely", times=times)
    clock.advance(3 * 3600)
    first = take(store, limit=10)
    store.run(commands.refill("minutely", times[-1], [times[-1] + number * 60_000 for number in range(1, 200)]))

    assert len(first + take(store, limit=10)) == 1


def test_very_many_missed_times_are_made_up_for_in_bounded_steps(store: Store, clock: TestClock) -> None:
    declare(store, "often", every=1000, missed="all", backlog=250)
    clock.advance(1000)
    got = [take(store, limit=1000) for _ in range(4)]

    assert [len(part) for part in got] == [100, 100, 50, 0]
    ids = [id for part in got for id in part]
    assert ids == sorted(set(ids))
    clock.advance(1)
    assert len(take(store, limit=10)) == 1


def test_a_trigger_that_cannot_enqueue_is_refused(store: Store, namespace: str) -> None:
    declare(store, every=MINUTE)
    worse = '{"queue": "{q}", "task": "report"}'  # as a release might write that allows more
    store.execute("HSET", f"hf:{{{namespace}}}:sc:nightly", "batch", worse)

    with pytest.raises(errors.Invalid, match="a queue must be"):
        store.run(commands.trigger("nightly"))
    assert "job" not in known(store)
