"""`holdfast fork`, and `holdfast retry --from-start`."""

from __future__ import annotations

import pytest

from holdfast.job.outcome import Error
from holdfast.store import commands
from holdfast.store.commands import Lease
from tests.support.shells import Hand, Shell, failure


@pytest.fixture
def failed(shell: Shell) -> str:
    shell.put("first")
    hand = Hand(shell.client)
    hand.take()
    held = Lease("node/worker.1", "first", 1)
    shell.client.store.run(commands.save(held, b'{"page":7}'))
    shell.client.store.run(commands.once(held, "charge", b"4711"))
    shell.client.fail("first", reason="stopped to look")
    return "first"


def test_a_fork_is_printed_and_shown_with_where_it_comes_from(shell: Shell, failed: str) -> None:
    ended = shell("fork", failed, "--id", "second", "-Q", "large", "--priority", "3")
    assert (ended.code, ended.rows) == (0, [["second", "waiting"]])
    assert "queue large has no jobs yet" in ended.err

    shown = shell("show", "second", "--json").json
    assert (shown["forked_from"], shown["queue"], shown["priority"]) == ("first", "large", 3)
    assert shown["checkpoint"] == {"page": 7}
    assert shown["notes"][0]["what"] == "forked"
    assert shown["notes"][0]["text"] == "from first at attempt 1"
    assert shell("show", "first", "--json").json["notes"][-1]["text"] == "into second"
    assert "forked       from" in shell("show", "second").out


def test_the_same_fork_is_printed_again(shell: Shell, failed: str) -> None:
    created = [shell("fork", failed, "--id", "second", "--json").json["created"] for _ in range(2)]
    assert created == [True, False]
    assert "job second already exists; nothing was stored" in shell("fork", failed, "--id", "second").err


def test_a_fork_from_the_start_has_nothing_of_what_was_saved(shell: Shell, failed: str) -> None:
    id = shell("fork", failed, "--from-start", "--json").json["id"]
    assert shell("show", id, "--json").json["checkpoint"] is None


def test_jobs_that_cannot_be_forked_are_refused(shell: Shell, failed: str) -> None:
    shell.put("new")
    for words, code, message in (
        (("new",), 1, "has saved neither a checkpoint nor steps"),
        (("firts",), 3, "job firts does not exist"),
        ((failed, "--id", "new"), 1, "job new already exists, and is not a fork of job first"),
        ((failed, "--unique", "key"), 2, "No such option '--unique'"),
        ((failed, "--priority", "1000"), 2, "priority is 1000"),
    ):
        ended = shell("fork", *words)
        assert (ended.code, message in ended.err) == (code, True), ended.err


def test_a_retry_keeps_the_checkpoint_unless_it_is_from_the_start(shell: Shell, failed: str) -> None:
    assert shell("retry", failed).code == 0
    assert shell("show", failed, "--json").json["checkpoint"] == {"page": 7}
    Hand(shell.client, "node/other").end(Error(failure(), "g", final=True))

    assert shell("retry", failed, "--from-start").rows == [["first", "waiting"]]
    shown = shell("show", failed, "--json").json
    assert (shown["checkpoint"], shown["notes"][-1]["text"]) == (None, "from the start")


def test_all_that_match_are_retried_from_the_start(shell: Shell, failed: str) -> None:
    assert shell("retry", "--all", "--from-start", "--yes").code == 0
    assert shell("show", failed, "--json").json["checkpoint"] is None
