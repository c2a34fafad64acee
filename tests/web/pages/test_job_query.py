"""Queries of jobs: text, parameters and chips are the same query."""

from __future__ import annotations

import random

import pytest

from holdfast.client.filters import FILTERS
from holdfast.errors import Invalid
from holdfast.web.pages.job_query import MAX_TEXT, ORDER, Query, parse

PIECES = ['"', "\\", " ", ":", ",", "a", "é", "#", "\t", "x y", "<b>", "state:failed", "\u202e", "'"]


def test_every_filter_has_a_word() -> None:
    assert set(ORDER) == {each.name for each in FILTERS}


def test_a_query_is_read_in_any_order_and_written_in_one() -> None:
    found = parse("queue:mail  since:1h tag:new state:failed")
    assert found.filters == {"state": ("failed",), "queue": ("mail",), "since": "1h", "tag": "new"}
    assert found.text == "state:failed queue:mail tag:new since:1h"
    assert found.pairs("filter.")[:2] == [("filter.state", "failed"), ("filter.queue", "mail")]


def test_lists_are_given_with_commas_or_twice() -> None:
    assert parse("state:failed,cancelled queue:a queue:b queue:a").filters == {
        "state": ("failed", "cancelled"),
        "queue": ("a", "b"),
    }


def test_times_keep_their_colons() -> None:
    assert parse("since:2026-11-14T22:03Z until:1h").filters == {"since": "2026-11-14T22:03Z", "until": "1h"}


def test_a_word_without_a_name_is_the_beginning_of_an_id() -> None:
    assert parse("0R5d").filters == {"id_prefix": "0R5d"}
    assert parse("0R5d").text == "id:0R5d"


def test_values_with_spaces_are_in_quotes() -> None:
    assert parse(r'tag:"two words" group:"say \"no\""').filters == {"tag": "two words", "group": 'say "no"'}


def test_flags_are_said_with_yes() -> None:
    assert parse("stalled:yes").filters == {"stalled": "true"}
    assert parse("stalled:yes").text == "stalled:yes"
    assert parse("stalled:yes").options() == {"stalled": True}
    assert parse("tag:true").text == "tag:true"


def test_nothing_is_all_jobs() -> None:
    assert parse(" ").filters == {}
    assert not parse("")
    assert parse("").text == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("statt:failed", "unknown filter 'statt'; did you mean state?"),
        ("tag:a tag:b", "tag: is given twice"),
        ('tag:"open', "cannot read"),
        ("task:", "task: has no value"),
        ("stalled:no", "expected stalled:yes"),
        ("x" * (MAX_TEXT + 1), "characters"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why.replace("?", r"\?")):
        parse(text)


def test_any_value_can_be_written_and_read_again() -> None:
    draw = random.Random(5)
    for _ in range(500):
        texts = {
            name: "".join(draw.choices(PIECES, k=draw.randint(1, 6))) for name in ("tag", "group", "task", "unique")
        }
        query = Query({**texts, "queue": ("a", "b.c"), "state": ("failed",)})
        assert parse(query.text) == query, query.text


def test_a_query_changes_by_its_parts() -> None:
    query = parse("state:failed queue:mail")
    assert query.having(state=None).text == "queue:mail"
    assert query.having(tag="x").address(cursor="c,1") == "state=failed&queue=mail&tag=x&cursor=c%2C1"
    assert [(term.word, term.value) for term in query.terms()] == [("state", "failed"), ("queue", "mail")]
