"""Tags, scopes and tracked jobs in the store: indexes, their sizes, and damage."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.constants import MAX_TAGS
from holdfast.job.outcome import Advanced, Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Lease
from holdfast.store.library import function
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import DAY, ONE, end, fields, job, new, put, take

LONG = [f"{number:03}" + "x" * 40 for number in range(10)]  # too long for the record


def members(client: redis.Redis, namespace: str, name: str) -> dict[str, float]:
    found = client.zrange(f"hf:{{{namespace}}}:{name}", 0, -1, withscores=True)
    return {member.decode(): score for member, score in found}


@pytest.mark.parametrize("tags", [["a", "b"], LONG], ids=["short", "long"])
def test_a_job_has_its_tags_in_order_and_is_in_the_index_of_each(
    store: Store, client: redis.Redis, namespace: str, clock: TestClock, tags: list[str]
) -> None:
    put(store, "one", "two", tags=[*tags, tags[0]])
    put(store, "plain")
    assert job(store, "one")["tags"] == tags
    assert "tags" not in job(store, "plain")
    for tag in tags:
        assert members(client, namespace, f"tag:{tag}") == {"one": clock.now, "two": clock.now}
    assert members(client, namespace, "tags") == dict.fromkeys(tags, 2.0)


def test_a_scope_is_indexed_under_each_of_its_paths(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "one", scope="/tenant/7")
    put(store, "two", scope="/tenant/7/import")
    put(store, "three", scope="/tenant")
    assert set(members(client, namespace, "scope:/tenant")) == {"one", "two", "three"}
    assert set(members(client, namespace, "scope:/tenant/7")) == {"one", "two"}
    assert members(client, namespace, "scopes:") == {"tenant": 3}
    assert members(client, namespace, "scopes:/tenant") == {"7": 2}
    assert members(client, namespace, "scopes:/tenant/7") == {"import": 1}


@pytest.mark.parametrize("tags", [["a"], LONG], ids=["short", "long"])
def test_a_deleted_pruned_or_replaced_job_leaves_its_indexes(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, tags: list[str]
) -> None:
    put(store, "deleted", "pruned", "replaced", tags=tags, scope="/a/b")
    put(store, "unkept", tags=tags, scope="/a/b", keep=False)
    for id in take(store, limit=4):
        end(store, id, Succeed(b"1") if id != "replaced" else Error(b"{}", "E", final=True))
    assert members(client, namespace, "tags") == dict.fromkeys(tags, 3.0)
    store.run(commands.delete(["deleted"]))
    assert members(client, namespace, "tags") == dict.fromkeys(tags, 2.0)
    clock.advance(8 * DAY)
    store.run(commands.upkeep())
    assert members(client, namespace, "tags") == dict.fromkeys(tags, 1.0)
    assert set(members(client, namespace, "scope:/a")) == {"replaced"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": ["a\nb"]}, "a tag must be"),
        ({"tags": [""]}, "a tag must be"),
        ({"tags": ["x" * 65]}, "a tag must be"),
        ({"tags": [" a"]}, "a tag must be"),
        ({"tags": [str(n) for n in range(33)]}, "at most 32 tags"),
        ({"scope": "tenant"}, "a scope must be a path"),
        ({"scope": "/"}, "a scope must be a path"),
        ({"scope": "/a//b"}, "a scope must be a path"),
        ({"scope": "/a/b/"}, "a scope must be a path"),
        ({"scope": "/1/2/3/4/5/6/7/8/9"}, "a scope must be a path"),
        ({"scope": "/" + "x" * 128}, "a scope must be a path"),
    ],
)
def test_the_store_refuses_what_is_no_tag_or_scope(store: Store, options: dict[str, Any], message: str) -> None:
    with pytest.raises((errors.Invalid, errors.TooBig), match=message):
        put(store, "one", **options)


@pytest.mark.parametrize("tag", [b"\xff", b"\xed\xa0\x80", b"a\xc3", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80\x80"])
def test_a_tag_that_is_not_utf8_is_refused(client: redis.Redis, namespace: str, store: Store, tag: bytes) -> None:
    put(store, "one")
    args = b'{"ids":["one"],"tags":["' + tag + b'"]}'
    with pytest.raises(redis.ResponseError, match="a tag must be"):
        client.fcall(function("tag"), 1, f"hf:{{{namespace}}}:meta", args)
    for right in ("é", "€", "😀", "\ud7ff\ue000"):
        store.run(commands.tag(["one"], [right]))
    assert job(store, "one")["tags"] == ["é", "€", "😀", "\ud7ff\ue000"]


def test_a_claimed_job_brings_its_marks(store: Store) -> None:
    put(store, "one", "two", tags=["a"], scope="/t/7", run='{"x":1}')
    put(store, "three")
    claim = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=3)))
    assert [(each.marks, each.run) for each in claim.jobs] == [("#a\n/t/7", b'{"x":1}')] * 2 + [("", b"")]
    assert fields(store, "one", "tags", "scope") == (["a"], "/t/7")


# Later


def test_tags_are_added_and_removed_later(store: Store, clock: TestClock, client: redis.Redis, namespace: str) -> None:
    put(store, "one", "two", tags=["a"])
    clock.advance(5)
    assert store.run(commands.tag(["one", "two", "none"], ["b", "a", "c"])) == ["OK", "OK", "NOTFOUND"]
    assert fields(store, "one", "tags") == (["a", "b", "c"],)
    assert members(client, namespace, "tag:b") == {"one": clock.now, "two": clock.now}
    assert members(client, namespace, "tag:a") == {"one": clock.now - 5000, "two": clock.now - 5000}
    assert store.run(commands.tag(["one"], ["b"])) == ["SAME"]
    assert store.run(commands.untag(["one"], ["a", "x"])) == ["OK"]
    assert store.run(commands.untag(["one"], ["a"])) == ["SAME"]
    assert fields(store, "one", "tags") == (["b", "c"],)
    assert store.run(commands.tags()) == (3, {"c": 2, "b": 2, "a": 1})


def test_the_last_mark_that_is_removed_leaves_a_plain_job(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "one")
    before = client.hgetall(f"hf:{{{namespace}}}:j:one")
    store.run(commands.tag(["one"], LONG))
    assert client.exists(f"hf:{{{namespace}}}:m:one")
    store.run(commands.untag(["one"], LONG[1:]))
    assert not client.exists(f"hf:{{{namespace}}}:m:one")
    store.run(commands.untag(["one"], LONG))
    assert client.hgetall(f"hf:{{{namespace}}}:j:one") == before


def test_a_job_has_at_most_32_tags(store: Store) -> None:
    put(store, "one", tags=[f"t{number}" for number in range(31)])
    assert store.run(commands.tag(["one"], ["a", "b"])) == ["TOOBIG"]
    assert store.run(commands.tag(["one"], ["a"])) == ["OK"]
    assert len(job(store, "one")["tags"]) == 32


def test_a_running_job_changes_its_tags_as_long_as_it_holds_its_lease(store: Store) -> None:
    put(store, "one", tags=["a"])
    [claimed] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=1))).jobs
    lease = Lease(ONE, "one", 1)
    assert store.run(commands.tag_held(lease, ["b"], remove=["a"], created=claimed.created)) == (False, ["b"])
    with pytest.raises(errors.TooBig, match="would have 33 tags"):
        store.run(commands.tag_held(lease, [f"t{number}" for number in range(32)]))
    with pytest.raises(errors.Invalid, match="a tag must be"):
        store.run(commands.tag_held(lease, ["\n"]))
    store.run(commands.release(["one"]))
    with pytest.raises(errors.LeaseLost):
        store.run(commands.tag_held(lease, ["c"]))
    assert fields(store, "one", "tags") == (["b"],)


def test_a_retried_or_released_job_keeps_its_tags(store: Store) -> None:
    put(store, "one", tags=["a"], scope="/s")
    take(store)
    end(store, "one", Error(b"{}", "E", final=True))
    store.run(commands.retry(["one"]))
    assert fields(store, "one", "state", "tags", "scope") == ("waiting", ["a"], "/s")


def test_a_moved_job_keeps_its_tags_unless_others_are_given(store: Store) -> None:
    put(store, "one", tags=["a", "b"], scope="/s")
    store.run(commands.move(["one"], queue="other"))
    assert fields(store, "one", "queue", "tags", "scope") == ("other", ["a", "b"], "/s")
    store.run(commands.move(["one"], queue="q", tags=["c", "a"]))
    assert fields(store, "one", "queue", "tags", "scope") == ("q", ["c", "a"], "/s")
    store.run(commands.move(["one"], queue="other", tags=[]))
    assert fields(store, "one", "tags", "scope") == ([], "/s")


@pytest.mark.parametrize(
    ("given", "tags", "scope"),
    [
        ({}, ["a", "b"], "/s"),
        ({"tags": ["c"]}, ["c"], "/s"),
        ({"tags": ["b", "c"], "keep_tags": True}, ["a", "b", "c"], "/s"),
        ({"scope": "/s/t"}, ["a", "b"], "/s/t"),
        ({"tags": LONG, "scope": "/x"}, LONG, "/x"),
    ],
)
def test_a_job_that_advances_keeps_its_marks_unless_others_are_given(
    store: Store, given: dict[str, Any], tags: list[str], scope: str
) -> None:
    put(store, "one", tags=["a", "b"], scope="/s")
    take(store)
    assert end(store, "one", Advanced("next", {"queue": "q", **given}, b"[]")) == "OK"
    assert fields(store, "one", "task", "tags", "scope") == ("next", tags, scope)


def test_a_stage_that_would_have_too_many_tags_is_refused(store: Store) -> None:
    put(store, "one", tags=[f"t{number}" for number in range(20)])
    take(store)
    batch = {"queue": "q", "tags": [f"u{number}" for number in range(20)], "keep_tags": True}
    assert end(store, "one", Advanced("next", batch, b"[]")) == "INVALID"
    assert fields(store, "one", "task", "state") == ("task", "running")


def test_a_replaced_job_has_the_tags_of_the_new_one(store: Store) -> None:
    put(store, "one", tags=["a"], scope="/s")
    store.run(commands.enqueue([new("one", tags=["b"])], on_exists="replace"))
    assert fields(store, "one", "tags", "scope") == (["b"], "")
    store.run(commands.enqueue([new("one")], on_exists="replace"))
    assert "tags" not in job(store, "one")
    assert store.run(commands.tags()) == (0, {})


def test_jobs_of_a_schedule_get_its_tags(store: Store, clock: TestClock) -> None:
    batch = {"queue": "q", "task": "t", "tags": ["nightly"], "scope": "/reports"}
    store.run(commands.schedule("s", batch=batch, payload=b"[]", every=60_000))
    clock.advance(61)
    [claimed] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=1))).jobs
    assert claimed.marks == "#nightly\n/reports"
    assert store.run(commands.tags()) == (1, {"nightly": 1})


# Counts


def test_the_most_used_tags_come_first_and_rare_ones_can_be_left_out(store: Store) -> None:
    put(store, "1", "2", "3", tags=["all", "some"])
    put(store, "4", tags=["all"])
    put(store, "5", tags=["one"])
    assert list(store.run(commands.tags()).jobs.items()) == [("all", 4), ("some", 3), ("one", 1)]
    assert store.run(commands.tags(min=2)) == (2, {"all": 4, "some": 3})
    assert store.run(commands.tags(limit=1, skip=1)) == (3, {"some": 3})
    assert store.run(commands.tag_counts(["one", "none", "all"])) == [1, 0, 4]


def test_scopes_list_what_is_directly_inside(store: Store) -> None:
    put(store, "1", scope="/a/b")
    put(store, "2", "3", scope="/a/c/d")
    put(store, "4", scope="/ab")
    assert store.run(commands.scopes()) == (2, {"/a": 3, "/ab": 1})
    assert store.run(commands.scopes("/a")) == (2, {"/a/c": 2, "/a/b": 1})
    assert store.run(commands.scopes("/a/c/d")) == (0, {})
    with pytest.raises(errors.Invalid, match="a scope must be a path"):
        store.run(commands.scopes("/a/"))


def test_beyond_the_limit_of_the_namespace_new_tags_become_other(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    catalogue = f"hf:{{{namespace}}}:tags"
    fill = [f"fill{number}" for number in range(MAX_TAGS - 2)]
    for first in range(0, len(fill), 10_000):
        client.zadd(catalogue, dict.fromkeys(fill[first : first + 10_000], 1))
    put(store, "known", tags=["a"])
    put(store, "new", tags=["a", "b", "c", "d"])
    assert fields(store, "new", "tags") == (["a", "b", "other"],)
    store.run(commands.tag(["known"], ["e", "b"]))
    assert fields(store, "known", "tags") == (["a", "other", "b"],)
    client.zrem(catalogue, *fill)


def test_one_call_stores_a_bounded_number_of_marks(store: Store) -> None:
    tags = [f"t{number}" for number in range(21)]
    with pytest.raises(errors.TooBig, match="8400 tags"):
        put(store, *(str(number) for number in range(400)), tags=tags)


# Tracked jobs


def test_a_tracked_job_is_listed_until_it_is_deleted_and_then_among_those_that_were(
    store: Store, clock: TestClock
) -> None:
    put(store, "one", "two", tags=["a"])
    put(store, "three")
    assert store.run(commands.track(["one", "three", "none"])) == ["OK", "OK", "NOTFOUND"]
    clock.advance(1)
    assert store.run(commands.track(["two", "one"])) == ["OK", "SAME"]
    assert store.run(commands.tracked()) == (3, ["two", "three", "one"], [])
    assert fields(store, "one", "tracked", "tags") == (1, ["a"])
    store.run(commands.cancel(["three"]))
    store.run(commands.delete(["three"]))
    assert store.run(commands.tracked()) == (2, ["two", "one"], ["three"])
    assert store.run(commands.untrack(["one", "three", "none", "one"])) == ["OK", "OK", "NOTFOUND", "SAME"]
    assert store.run(commands.tracked()) == (1, ["two"], [])
    assert fields(store, "one", "tracked", "tags") == (0, ["a"])


def test_tracking_is_an_event(store: Store) -> None:
    put(store, "one")
    store.run(commands.track(["one"]))
    store.run(commands.untrack(["one"]))
    store.run(commands.untrack(["one"]))
    assert [(event.type, list(event.jobs)) for event in store.run(commands.events()).events][1:] == [
        ("tracked", ["one"]),
        ("untracked", ["one"]),
    ]


def test_a_job_that_replaces_a_tracked_one_is_tracked(store: Store) -> None:
    put(store, "one", "two", tags=["a"])
    store.run(commands.track(["one", "two"]))
    store.run(commands.enqueue([new("one"), new("two", tags=["b"])], on_exists="replace"))
    assert store.run(commands.tracked()) == (2, ["two", "one"], [])
    assert fields(store, "two", "tracked", "tags") == (1, ["b"])
    assert fields(store, "one", "tracked", "tags") == (1, [])


def test_a_limited_number_of_deleted_jobs_is_remembered(store: Store) -> None:
    ids = [f"{number:04}" for number in range(1001)]
    for part in (ids[:1000], ids[1000:]):
        put(store, *part)
        store.run(commands.track(part))
        store.run(commands.cancel(part))
        store.run(commands.delete(part))
    assert store.run(commands.tracked()) == (0, [], ids[:0:-1])


# Damage


@pytest.mark.parametrize("damage", ["missing", "empty", "damaged", "blob"])
def test_a_job_whose_marks_are_lost_leaves_entries_that_repair_removes(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, damage: str
) -> None:
    put(store, "one", "two", tags=LONG if damage == "blob" else ["a", "b"], scope="/s/t")
    store.run(commands.track(["one"]))
    record = f"hf:{{{namespace}}}:j:one"
    if damage == "missing":
        client.hdel(record, "t")
    elif damage == "blob":
        client.delete(f"hf:{{{namespace}}}:m:one")
    else:
        client.hset(record, "t", {"empty": "", "damaged": "?\n#\x00\n/a//b\n=\n!!"}[damage])
    assert fields(store, "one", "tags", "scope", "tracked") == ([], "", 0)
    store.run(commands.cancel(["one"]))
    store.run(commands.delete(["one"]))
    for _ in range(30):
        clock.advance(1)
        store.run(commands.upkeep())
    assert set(members(client, namespace, "scope:/s")) == {"two"}
    assert set(store.run(commands.tags()).jobs.values()) == {1}
    assert store.run(commands.tracked()) == (0, [], ["one"])


def test_index_entries_and_sizes_of_others_are_removed_and_missing_ones_are_added(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    put(store, "one", tags=["a"], scope="/s", delay=10**9)
    put(store, "plain", delay=10**9)
    base = f"hf:{{{namespace}}}:"
    client.zadd(f"{base}tag:a", {"plain": 1, "ghost": 1})
    client.zadd(f"{base}tags", {"a": 70, "nobody": 3})
    client.zadd(f"{base}scope:/s", {"ghost": 1})
    client.zadd(f"{base}tracked", {"plain": 1, "ghost": 1})
    client.zrem(f"{base}tag:a", "one")
    client.delete(f"{base}scopes:")
    for _ in range(30):
        clock.advance(1)
        store.run(commands.upkeep())
    assert set(members(client, namespace, "tag:a")) == {"one"}
    assert store.run(commands.tags()) == (1, {"a": 1})
    assert store.run(commands.scopes()) == (1, {"/s": 1})
    assert store.run(commands.tracked()) == (0, [], ["ghost"])


def test_keys_of_another_type_do_not_stop_a_job(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    base = f"hf:{{{namespace}}}:"
    put(store, "one", tags=["a"])
    for name in ("tags", "tracked", "untracked", "scopes:"):
        client.delete(f"{base}{name}")
        client.set(f"{base}{name}", "text")
    take(store)
    assert end(store, "one", Succeed(b"1")) == "OK"
    clock.advance(8 * DAY)
    store.run(commands.upkeep())
    assert store.run(commands.get(["one"])) == [None]
    client.delete(*(f"{base}{name}" for name in ("tags", "tracked", "untracked", "scopes:")))


def test_the_marker_goes_with_the_last_mark(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    put(store, "one", tags=["a"])
    assert b"marks" in (client.hget(f"hf:{{{namespace}}}:meta", "markers") or b"")
    store.run(commands.untag(["one"], ["a"]))
    clock.advance(2)
    store.run(commands.upkeep())
    assert client.hget(f"hf:{{{namespace}}}:meta", "markers") is None


def test_a_job_that_is_deleted_as_it_gets_tags_leaves_nothing_behind(store: Store) -> None:
    """It goes on as another call, behind a job that has failed, and is not kept."""
    put(store, "before")
    assert take(store) == ["before"]
    end(store, "before", Error(b"", "E", final=True))
    put(store, "a", keep=False, tags=("old",))
    assert take(store) == ["a"]
    end(store, "a", Advanced("next", {"after": ["before"], "on_failed": "cancel", "tags": ["new"]}, b""))
    assert store.run(commands.list_jobs(states=["cancelled"])).jobs == []
