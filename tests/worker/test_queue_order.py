"""The order in which an executor claims from its queues: pure numbers, compared with a plain simulation of claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.queue_order import ClaimPlan, Strict, Weighted, new_order


class Takes(Protocol):
    """An order: strict, by weight, or in rotation."""

    def plan(self, limit: int, /) -> ClaimPlan: ...

    def record(self, plan: ClaimPlan, queues: Iterable[str]) -> None: ...


def claim(waiting: Counter[str], plan: ClaimPlan, limit: int) -> list[str]:
    """Take jobs as a claim does: at first at most the share of each queue, then whatever is there, in order."""
    taken: list[str] = []
    for shares in (plan.shares, [limit] * len(plan.queues)):
        for queue, share in zip(plan.queues, shares or [limit] * len(plan.queues), strict=True):
            count = min(share, waiting[queue], limit - len(taken))
            waiting[queue] -= count
            taken += [queue] * count
    return taken


def take(order: Takes, waiting: Counter[str], limit: int, claims: int) -> list[str]:
    """Claim so many times. Returns the queues of the jobs, in the order in which they came."""
    came: list[str] = []
    for _ in range(claims):
        plan = order.plan(limit)
        taken = claim(waiting, plan, limit)
        order.record(plan, taken)
        came += taken
    return came


def many(*queues: str) -> Counter[str]:
    return Counter(dict.fromkeys(queues, 1_000_000))


def test_strict_takes_all_of_the_first_queue_first() -> None:
    came = take(Strict(["b", "a"]), Counter(a=3, b=2), limit=2, claims=3)

    assert came == ["b", "b", "a", "a", "a"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_the_numbers_are_those_of_the_weights_whatever_the_limit(limit: int) -> None:
    came = take(Weighted({"video": 5, "mail": 1, "rest": 1}), many("video", "mail", "rest"), limit, claims=700)

    assert Counter(came) == {"video": 500 * limit, "mail": 100 * limit, "rest": 100 * limit}


def test_turns_are_spread_and_not_bunched() -> None:
    came = take(Weighted({"video": 5, "mail": 1, "rest": 1}), many("video", "mail", "rest"), limit=1, claims=14)

    assert came == ["video", "video", "video", "mail", "rest", "video", "video"] * 2


def test_round_robin_turns_to_each_queue_in_turn() -> None:
    came = take(new_order("round-robin", {"a": 9, "b": 1, "c": 1}), many("a", "b", "c"), limit=1, claims=9)

    assert came[:3] * 3 == came
    assert sorted(came[:3]) == ["a", "b", "c"]


@pytest.mark.parametrize("limit", [1, 10])
def test_the_turns_of_an_idle_queue_go_to_the_others_by_their_weights(limit: int) -> None:
    came = take(Weighted({"video": 6, "mail": 2, "rest": 1}), many("mail", "rest"), limit, claims=300)

    numbers = Counter(came)
    assert numbers.total() == 300 * limit
    assert abs(numbers["rest"] - 100 * limit) <= 10


def test_a_queue_that_was_idle_has_saved_up_no_turns() -> None:
    order = Weighted({"a": 1, "b": 1})
    take(order, many("a"), limit=1, claims=1000)

    came = take(order, many("a", "b"), limit=1, claims=10)

    assert Counter(came) == {"a": 5, "b": 5}


def test_a_claim_that_brings_nothing_changes_nothing() -> None:
    order = Weighted({"a": 2, "b": 1})
    before = order.plan(3)

    take(order, Counter(), limit=3, claims=5)

    assert order.plan(3) == before


def test_executors_that_end_after_one_job_each_turn_to_all_queues() -> None:
    first = Counter(order.plan(1).queues[0] for _ in range(1000) if (order := new_order("weighted", {"a": 3, "b": 1})))

    assert 150 < first["b"] < 350


def test_the_order_of_a_new_executor_is_that_of_an_old_one() -> None:
    cycles = {tuple(take(Weighted({"a": 3, "b": 2}, after=n), many("a", "b"), 1, claims=5)) for n in range(5)}

    assert all(Counter(cycle) == {"a": 3, "b": 2} for cycle in cycles)
    assert len(cycles) > 1


queues = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1)


@given(queues, st.lists(st.tuples(st.integers(1, 20), st.sets(st.sampled_from("abcdef"))), max_size=60))
def test_nothing_that_waits_is_left_while_there_is_room_and_no_queue_waits_for_ever(
    weights: dict[str, int], claims: list[tuple[int, set[str]]]
) -> None:
    order = Weighted(weights)
    for limit, busy in claims:
        waiting = many(*(busy & set(weights)))
        plan = order.plan(limit)
        assert sorted(plan.queues) == sorted(weights)
        assert sum(plan.planned or ()) == limit
        taken = claim(waiting, plan, limit)
        assert len(taken) == (limit if busy & set(weights) else 0)
        order.record(plan, taken)

    came = take(order, many(*weights), limit=1, claims=22 * sum(weights.values()))

    assert set(came) == set(weights)


def test_what_a_repeated_claim_brings_of_a_queue_that_its_turn_does_not_name_counts() -> None:
    order = Weighted({"a": 1, "b": 1})

    order.record(ClaimPlan(["b"], [1]), ["a", "a"])

    assert take(order, many("a", "b"), limit=1, claims=3).count("b") > 1


def test_a_fair_order_sends_weights_and_turns_to_each_queue_among_equals() -> None:
    order = new_order("fair", {"a": 2, "b": 1, "c": 1})
    firsts = []
    for _ in range(8):
        plan = order.plan(1)
        assert dict(zip(plan.queues, plan.weights or (), strict=True)) == {"a": 2, "b": 1, "c": 1}
        assert plan.shares is None
        firsts.append(plan.queues[0])
        order.record(plan, plan.queues[:1])
    assert Counter(firsts) == {"a": 4, "b": 2, "c": 2}
