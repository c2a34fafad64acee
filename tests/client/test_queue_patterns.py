"""Patterns of queues: what they match, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.queue_patterns import Patterns, join
from holdfast.client.queue_patterns import expand as expand_joined
from holdfast.errors import Invalid
from holdfast.worker.settings import read_queues
from holdfast.worker.settings_file import SettingsFile, make_settings, read_settings_file

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


# Of several pools


@pytest.mark.parametrize(
    ("pools", "joined", "served"),
    [
        ([["a", "b"], ["b", "c"]], ["a", "b", "c"], ["a", "b", "c"]),
        ([["v-*"], ["*"]], ["v-*", "*"], ["v-1", "a", "b"]),
        ([["v-*"], ["*", "!v-*"]], ["v-*", "|", "*", "!v-*"], ["v-1", "a", "b"]),
        ([["*", "!v-*", "!b"], ["b"]], ["*", "!v-*", "!b", "|", "b"], ["a", "b"]),
    ],
)
def test_what_one_pool_excludes_another_may_serve(pools: list[list[str]], joined: list[str], served: list[str]) -> None:
    assert join(pools) == joined
    assert expand_joined(joined, ["v-1", "b", "a"]) == served
