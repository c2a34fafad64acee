"""Patterns of queues: what they match, which are refused, and queues that come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.worker.queue_order import Rotation, Weighted
from holdfast.client.queue_patterns import Patterns
from holdfast.worker.settings import Order, read_queues
from holdfast.worker.settings_file import SettingsFile, make_settings, read_settings_file
from tests.worker.test_queue_order import claim, take

# What they stand for


def expand(told: str, *queues: str) -> list[str]:
    return list(Patterns(read_queues(told, "queues")).expand(queues))


@pytest.mark.parametrize(
    ("told", "queues", "served"),
    [
        ("video-*,mail", ["video-b", "other", "video-a"], ["video-a", "video-b", "mail"]),
        ("mail,video-*", [], ["mail"]),
        ("*,mail", ["video", "mail", "a"], ["a", "video", "mail"]),
        ("a*,*b", ["ab", "b", "a"], ["a", "ab", "b"]),
        ("*,!video-test,!*-slow", ["video-test", "video", "mail-slow", "slow"], ["slow", "video"]),
        ("video-*,!video-test,video-first", ["video-z", "video-first"], ["video-z", "video-first"]),
        ("*.mail", ["xmail", "a.mail", ".mail"], [".mail", "a.mail"]),
        ("v*o*", ["video-on", "vo", "Video", "vid"], ["video-on", "vo"]),
        ("*", ["Z", "a", "_"], ["Z", "_", "a"]),
    ],
)
def test_a_pattern_stands_for_the_queues_that_match_and_are_not_named_or_excluded(
    told: str, queues: list[str], served: list[str]
) -> None:
    assert expand(told, *queues) == served


def test_each_queue_that_matches_has_the_weight_of_its_pattern() -> None:
    patterns = Patterns(read_queues("mail,video-*=3,*=2,video-a=7", "queues"))

    assert patterns.expand(["video-a", "video-b", "c"]) == {"mail": 1, "video-b": 3, "c": 2, "video-a": 7}


names = st.text("ab-", min_size=1, max_size=4)
words = st.lists(st.text("ab*", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@given(words, st.lists(st.text("ab*", min_size=1, max_size=3), max_size=2, unique=True), st.sets(names))
def test_every_queue_is_served_once_or_not_at_all(served: list[str], excluded: list[str], queues: set[str]) -> None:
    try:
        told = read_queues([*served, *(f"!{word}" for word in excluded)], "queues")
    except Invalid:
        return
    patterns = Patterns(told)

    found = patterns.expand(queues)

    assert set(found) - queues == {word for word in served if "*" not in word} - queues
    assert all(patterns.serves(queue) == (queue in found) for queue in queues)
    assert not any(queue in excluded for queue in found)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("video-[ab]*", "queue is 'video-[ab]*'; a pattern must be 1 to 100 characters of"),
        ("video *", "a pattern must be"),
        ("a,!", "a pattern must be"),
        ("*,!!a", "a pattern must be"),
        ("*" * 101, "a pattern must be"),
        ("video?", "queue is 'video?'; it must be"),
        ("mail,!video", "queues has !video but no pattern, so it excludes nothing"),
        ("!*", "queues has !* but no pattern"),
        ("mail,*,!mail", "queues has mail and excludes it by !mail"),
        ("mail,video*,!m*", "queues has mail and excludes it by !m*"),
        ("video-*,!video*", "queues has video-* and excludes it by !video*"),
        ("*,!a=3", "the weight of !a is 3; an exclusion has the weight 0, or none"),
        ("video-*,video-*", "names video-* twice"),
        ("video-*=0", "the weight of video-* is 0"),
    ],
)
def test_words_that_make_no_sense_are_refused(told: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_queues(told, "queues")

    assert says in str(refused.value)


def test_patterns_stand_in_files_as_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("""
        [[pools]]
        name = "a"
        queues = ["video-*", "!video-test"]
        [[pools]]
        name = "b"
        order = "weighted"
        queues = { "video-*" = 3, mail = 1, "!*-slow" = 0 }
    """)

    one, two = make_settings("tasks", {}, read_settings_file(path)).pools

    assert one.queues == {"video-*": 1, "!video-test": 0}
    assert two.queues == {"video-*": 3, "mail": 1, "!*-slow": 0}
    path.write_text("queues = ['a', '!b']")
    with pytest.raises(Invalid, match=r"^worker\.toml, line 1: queues has !b but no pattern"):
        read_settings_file(path)
    with pytest.raises(Invalid, match="queues have weights, but order is strict"):
        make_settings("tasks", {"queues": read_queues("video-*=3", "queues")}, SettingsFile())


# Queues that come and go


def many(queues: Mapping[str, int]) -> Counter[str]:
    return Counter(dict.fromkeys(queues, 1_000_000))


@pytest.mark.parametrize("taken", range(8))
def test_queues_that_stay_keep_their_positions(taken: int) -> None:
    stay = {"a": 3, "b": 2, "c": 2}
    changed, unchanged = Weighted(stay), Weighted(stay)
    for order in (changed, unchanged):
        take(order, many(stay), limit=1, claims=taken)

    changed.change({"new": 5, **stay})
    came = take(changed, many({"new": 5, **stay}), limit=1, claims=24)

    others = [queue for queue in came if queue != "new"]
    assert others == take(unchanged, many(stay), limit=1, claims=14)


def test_a_new_queue_neither_waits_for_long_nor_has_saved_up_turns() -> None:
    order = Weighted({"a": 1, "b": 1})
    take(order, many({"a": 1, "b": 1}), limit=1, claims=1000)

    order.change({"a": 1, "b": 1, "new": 1})
    came = take(order, many({"a": 1, "b": 1, "new": 1}), limit=1, claims=9)

    assert Counter(came) == {"a": 3, "b": 3, "new": 3}
    assert "new" in came[:3]


def test_a_claim_on_its_way_may_bring_jobs_of_a_queue_that_is_not_served_any_more() -> None:
    order = Weighted({"a": 1, "gone": 1})
    plan = order.plan(2)

    order.change({"a": 1, "new": 1})
    order.record(plan, ["gone", "a"])
    order.record(plan, ["gone"])

    assert order.plan(1).queues[0] == "new"


weights = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1)


@given(st.lists(weights, min_size=2, max_size=6), st.integers(1, 9))
def test_the_numbers_are_those_of_the_weights_after_any_change(steps: list[dict[str, int]], limit: int) -> None:
    order = Weighted(steps[0])
    for step in steps:
        order.change(step)
        take(order, many(step), limit, claims=3)

    last = steps[-1]
    came = Counter(take(order, many(last), limit=1, claims=10 * sum(last.values())))

    assert all(abs(came[queue] - 10 * weight) <= 9 * limit for queue, weight in last.items())


# More queues than a claim may name

ORDERS: list[Order] = ["strict", "round-robin", "weighted"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [1, 7])
def test_all_jobs_of_many_queues_are_found_before_an_executor_is_idle(order: Order, limit: int) -> None:
    queues = {f"q{number:02}": 1 + number % 3 for number in range(25)}
    rotation = Rotation(order, queues, max_queues=4)
    waiting = Counter({queue: 3 for number, queue in enumerate(queues) if number % 5 == 0})

    came: list[str] = []
    while waiting.total() or rotation.is_partial:
        plan = rotation.plan(limit)
        assert len(plan.queues) <= 4
        taken = claim(waiting, plan, limit)
        rotation.record(plan, taken)
        came += taken

    assert Counter(came) == {queue: 3 for number, queue in enumerate(queues) if number % 5 == 0}


@pytest.mark.parametrize("order", ORDERS)
def test_an_executor_has_asked_for_all_of_many_queues_when_it_is_idle(order: Order) -> None:
    queues = {f"q{number:02}": 1 for number in range(25)}
    rotation = Rotation(order, queues, max_queues=4)
    take(rotation, Counter(q03=5), limit=1, claims=20)
    while rotation.is_partial:
        rotation.record(rotation.plan(1), [])

    for _ in range(3):
        asked: list[str] = []
        while not asked or rotation.is_partial:
            plan = rotation.plan(1)
            rotation.record(plan, [])
            asked += plan.queues
        assert set(asked) == set(queues)


@pytest.mark.parametrize("order", ORDERS)
def test_a_queue_that_has_jobs_for_ever_keeps_no_other_of_many_from_its_turn(order: Order) -> None:
    queues = {f"q{number:02}": 1 for number in range(25)}
    rotation = Rotation(order, queues, max_queues=4)
    waiting = Counter(q20=1_000_000)
    take(rotation, waiting, limit=1, claims=30)
    waiting["q07"] = 5

    came = take(rotation, waiting, limit=1, claims=200)

    assert Counter(came)["q07"] == 5


def test_a_rotation_that_has_no_queue_yet_begins_with_the_first_that_come() -> None:
    rotation = Rotation("weighted", {})
    assert not rotation

    rotation.serve({"a": 2, "b": 1})

    assert rotation
    assert Counter(take(rotation, many({"a": 1, "b": 1}), limit=1, claims=9)) == {"a": 6, "b": 3}
    rotation.serve({})
    assert not rotation
