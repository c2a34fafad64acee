"""`holdfast items --protocol redis-work-queue`: put, claim, renew, complete, release, clean and length."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from holdfast.cli import exit_codes
from tests.support.shells import Shell


@pytest.fixture
def shared(shell: Shell) -> tuple[str, ...]:
    return ("--protocol", "redis-work-queue", "--prefix", shell.client.address.namespace)


def test_a_script_shares_a_queue(shell: Shell, shared: tuple[str, ...]) -> None:
    items: Any = shell.client.items("thumbs", protocol="redis-work-queue", prefix=shared[-1])
    assert shell("items", "put", "thumbs", "one", "--id", "a", *shared).out == "a\n"
    again = shell("items", "put", "thumbs", "two", "--id", "a", *shared)
    assert (again.code, again.err) == (0, "holdfast: item a already exists; nothing was stored\n")
    assert len(shell("items", "put", "thumbs", "--lines", *shared, stdin="b\nc\n").out.splitlines()) == 2
    assert shell("items", "length", "thumbs", *shared).out == "thumbs\t3\t0\n"
    claimed = shell("items", "claim", "thumbs", *shared, "--payload", "image", "--lease", "1m")
    token = claimed.out.strip()
    assert (shell.folder / "image").read_bytes() == b"one"
    assert shell("items", "renew", token).out == "renewed\n"
    assert shell("items", "complete", token).out == "a\tcompleted\n"
    late = shell("items", "complete", token)
    assert (late.code, "no longer held" in late.err) == (1, True)
    shown = json.loads(shell("items", "claim", "thumbs", *shared, "--json").out)
    assert (shown["payload"], shown["queue"], shown["attempt"], shown["data"]) == ("b", "thumbs", None, None)
    assert shell("items", "release", shown["token"]).code == 0
    assert (items.length(), items.in_progress()) == (2, 0)


def test_clean_counts_what_it_puts_back(shell: Shell, shared: tuple[str, ...], server_url: str) -> None:
    prefix = shared[-1]
    with redis.Redis.from_url(server_url) as client:
        client.set(f"{prefix}:item:lost", b"")
        client.set(f"{prefix}:item:left", b"")
        client.lpush(f"{prefix}:processing", "left")
        assert shell("items", "clean", "thumbs", *shared).out == "thumbs\t1\n"
        deep = shell("items", "clean", "thumbs", *shared, "--deep", "--json")
        assert json.loads(deep.out) == {"queue": "thumbs", "put_back": 1}
        assert client.lrange(f"{prefix}:queue", 0, -1) == [b"lost", b"left"]


def test_an_empty_queue_has_an_exit_code_and_an_id_may_be_any_bytes(shell: Shell, shared: tuple[str, ...]) -> None:
    assert shell("items", "claim", "thumbs", *shared).code == exit_codes.NOT_FOUND
    shell.client.items("thumbs", protocol="redis-work-queue", prefix=shared[-1]).put(b"\xff", id=b"\xff")
    shown = json.loads(shell("items", "claim", "thumbs", *shared, "--json").out)
    assert (shown["id"], shown["payload"]) == ("\\xff", {"base64": "/w=="})
    assert shell("items", "complete", shown["token"]).out == "\\xff\tcompleted\n"


def test_what_the_protocol_does_not_have_is_refused(shell: Shell, shared: tuple[str, ...]) -> None:
    shell("items", "put", "thumbs", "one", *shared)
    token = shell("items", "claim", "thumbs", *shared).out.strip()
    for words, message in [
        (("put", "thumbs", "x", "--retries", "3", *shared), "--retries cannot be combined with --protocol"),
        (("put", "thumbs", "x", "--tag", "a", *shared), "--tag cannot be combined with --protocol"),
        (("put", "thumbs", "x", "--prefix", "p"), "--prefix needs --protocol"),
        (("claim", "thumbs", "--prefix", "p"), "--prefix needs --protocol"),
        (("complete", token, "a result"), "has only an id and bytes"),
        (("release", token, "--delay", "1m"), "has only an id and bytes"),
        (("fail", token, "why"), "cannot fail"),
        (("clean", "thumbs"), "Missing option '--protocol'"),
        (("length", "thumbs"), "Missing option '--protocol'"),
    ]:
        refused = shell("items", *words)
        assert (refused.code, message in refused.err) == (2, True), refused.err
