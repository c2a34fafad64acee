"""Tags, scopes and tracked jobs in the store: indexes, their sizes, and damage."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import DAY, ONE, end, fields, job, put, take

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
    with pytest.raises(errors.Invalid, match=message):
        put(store, "one", **options)


def test_a_claimed_job_brings_its_marks(store: Store) -> None:
    put(store, "one", "two", tags=["a"], scope="/t/7", run='{"x":1}')
    put(store, "three")
    claim = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=3)))
    assert [(each.marks, each.run) for each in claim.jobs] == [("#a\n/t/7", b'{"x":1}')] * 2 + [("", b"")]
    assert fields(store, "one", "tags", "scope") == (["a"], "/t/7")
