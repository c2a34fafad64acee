"""Fleets: which workers are added and removed, and the slots that they have together."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast import Invalid
from holdfast.planning.fleet import Change, PoolShape, WorkerShape, changed, groups, shape_of
from holdfast.planning.model import PoolGroup
from holdfast.store.commands import Worker
from holdfast.units import utc
from tests.support.workers import Crew, until

MAIL = WorkerShape((PoolShape((("mail", 1),), "strict", 4, 100),))
ALL = WorkerShape((PoolShape((("*", 1), ("!video", 0)), "strict", 8, 50), PoolShape((("video", 1),), "fair", 1, 1)))
FLEET = Counter({MAIL: 3, ALL: 1})


def change(workers: int | str, **slots: int) -> Change:
    return Change.read(workers, **slots)


def test_added_workers_are_like_the_most_common_ones_that_serve_the_queue() -> None:
    assert changed(FLEET, change("+2"), ["mail"]) == {MAIL: 5, ALL: 1}
    assert changed(FLEET, change("+2"), ["video"]) == {MAIL: 3, ALL: 3}
    assert changed(FLEET, change(6), ["mail"]) == {MAIL: 5, ALL: 1}
    assert changed(FLEET, change(4), ["mail"]) == FLEET


def test_the_most_common_workers_are_removed_first() -> None:
    assert changed(FLEET, change("-2"), ["mail"]) == {MAIL: 1, ALL: 1}
    assert changed(FLEET, change(0), ["mail"]) == {}
    assert changed(FLEET, change("-5"), ["video"]) == {MAIL: 3}


def test_added_workers_can_have_other_slots() -> None:
    after = changed(FLEET, change("+1", processes=16), ["video"])
    [added] = after - FLEET
    assert added.pools[1] == PoolShape((("video", 1),), "fair", 16, 1)
    first = changed(Counter(), change(2, concurrency=10), ["mail"])
    assert first == {WorkerShape((PoolShape((("mail", 1),), "strict", 0, 10),)): 2}
    with pytest.raises(Invalid, match="no worker serves mail"):
        changed(Counter(), change(2), ["mail"])


def test_pools_with_the_same_queues_are_one_group() -> None:
    assert groups(FLEET, ["mail", "video", "news"]) == (
        PoolGroup((("mail", 1),), "strict", 12, 300),
        PoolGroup((("mail", 1), ("news", 1)), "strict", 8, 50),
        PoolGroup((("video", 1),), "fair", 1, 1),
    )


@pytest.mark.parametrize(
    "about",
    [{}, {"pools": 5}, {"pools": [5, {"queues": ["mail"]}]}, {"pools": [{"queues": {"mail": 1}, "processes": -1}]}],
)
def test_a_worker_that_reports_no_pools_has_a_slot_for_each_job_that_it_holds(about: dict[str, object]) -> None:
    worker = Worker("node/one", utc(0), True, ["mail", "news"], about, [])

    assert shape_of(worker) == WorkerShape((PoolShape((("mail", 1), ("news", 1)), "strict", 1, 1),))


def test_a_real_worker_reports_its_pools_and_the_tasks_that_take_no_process(crew: Crew) -> None:
    crew.start("--processes", "3", "--concurrency", "7", "--executors", "2", "--queues", "a=2,b=1", "--order", "fair")
    until(lambda: [each.tasks for each in crew.app.workers()] not in ([], [None]))

    [found] = crew.app.workers()
    assert shape_of(found) == WorkerShape((PoolShape((("a", 2), ("b", 1)), "fair", 6, 14),))
    assert "tests.apps.worker_app.add_async" in found.tasks_in_process
    assert "tests.apps.worker_app.add" in set(found.tasks or ()) - set(found.tasks_in_process)
