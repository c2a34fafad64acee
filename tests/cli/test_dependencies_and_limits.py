"""Dependencies, operators' actions, limits, shares and deadlines from the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import redis

from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from tests.support.shells import Hand, Shell, failure, running_worker


def chain(shell: Shell, *ids: str) -> None:
    """Store jobs of which each waits for the one before."""
    shell.put(ids[0])
    for before, id in pairwise(ids):
        assert shell("enqueue", "any.task", "--id", id, "--after", before).out == f"{id}\n"


# Dependencies


def test_a_job_comes_after_others_in_their_order(shell: Shell) -> None:
    shell.put("one")
    shell.put("two")
    shell("enqueue", "any.task", "--id", "last", "--after", "two", "--after", "one", "--on-failed", "run")

    job = shell("show", "last", "--json").json
    assert (job["state"], job["waits_for"]) == ("blocked", 2)
    assert [(each["id"], each["state"]) for each in job["after"]] == [("two", "pending"), ("one", "pending")]


def test_ids_to_come_after_are_read_from_a_pipe(shell: Shell) -> None:
    for id in ("one", "two"):
        shell.put(id, queue="map")
    listed = shell("jobs", "--queue", "map").out
    shell.put("more")
    id = shell("enqueue", "any.task", "--after", "-", "--after", "more", "--after", "one", stdin=listed).out.strip()

    assert sorted(each.id for each in shell.client.get(id).after) == ["more", "one", "two"]


def test_an_empty_pipe_means_no_dependencies_with_a_note(shell: Shell) -> None:
    code, out, err = shell("enqueue", "any.task", "--after", "-")

    assert (code, shell.client.get(out.strip()).state) == (0, "waiting")
    assert "contains no ids" in err


def test_lines_and_ids_cannot_both_come_from_the_standard_input(shell: Shell) -> None:
    code, _, err = shell("enqueue", "any.task", "--from", "-", "--after", "-", stdin="{}\n")

    assert (code, "both read standard input" in err) == (2, True)


def test_on_failed_without_after_is_a_usage_error(shell: Shell) -> None:
    assert shell("enqueue", "any.task", "--on-failed", "run").code == 2


def test_a_job_to_come_after_that_is_not_there_is_not_found(shell: Shell) -> None:
    shell.put("begun-by-us")
    code, _, err = shell("enqueue", "any.task", "--after", "begun-by-us", "--after", "begun-by-")

    assert (code, "dependency begun-by- does not exist" in err, "did you mean begun-by-us?" in err) == (3, True, True)


def test_dependencies_of_a_job_are_added_and_removed(shell: Shell) -> None:
    for id in ("first", "mine", "other"):
        shell.put(id)

    assert shell("depend", "mine", "--on", "first", "--on", "other").rows == [["mine", "blocked"]]
    assert shell("depend", "mine", "--not-on", "first", "--not-on", "other", "--json").json == {
        "id": "mine",
        "state": "waiting",
    }
    assert shell("depend", "mine", "--on", "-", stdin="first\ttasks.add\n").rows == [["mine", "blocked"]]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("depend", "b", "--on", "nobody"), 3, "dependency nobody does not exist"),
        (("depend", "nobody", "--on", "a"), 3, "job nobody does not exist"),
        (("depend", "begun-by-", "--on", "a"), 3, "did you mean begun-by-us?"),
        (("depend", "a", "--on", "begun-by-"), 3, "did you mean begun-by-us?"),
        (("depend", "a", "--on", "b"), 1, "would wait for itself"),
        (("depend", "a"), 2, "expected --on ID"),
    ],
)
def test_invalid_dependencies_are_refused(shell: Shell, words: tuple[str, ...], code: int, expected: str) -> None:
    chain(shell, "a", "b")
    shell.put("begun-by-us")

    ended = shell(*words)
    assert (ended.code, ended.out) == (code, "")
    assert expected in ended.err


def test_show_lists_the_dependencies_of_a_job_and_advice_if_one_has_failed(shell: Shell) -> None:
    chain(shell, "first", "mine")
    assert "blocked\tit waits for first (waiting)" in shell("show", "mine").out
    assert "waits for 1 job" in shell("jobs", "--state", "blocked").out
    Hand(shell.client).end(Error(failure(), "g", final=True))

    text = shell("show", "mine").out
    assert "it waits for first (failed); also, no worker is running; `holdfast retry first`" in text
    assert "after\tfirst failed" in text
    assert shell("depend", "mine", "--on-failed", "run").rows == [["mine", "waiting"]]


def test_show_explains_why_a_waiting_job_does_not_run(shell: Shell) -> None:
    shell.put("mine")
    assert "waiting\tno worker is running; `holdfast work APP`" in shell("show", "mine").out
    shell.client.pause("default")
    paused = "waiting\tqueue default is paused; also, no worker is running; `holdfast queues resume default`"
    assert paused in shell("show", "mine").out


def test_a_job_is_cancelled_with_all_that_wait_for_it(shell: Shell) -> None:
    chain(shell, "a", "b", "c")
    shell.put("other")

    assert shell("cancel", "a", "--dependents").rows == [[id, "cancelled"] for id in "abc"]
    assert shell("cancel", "a", "--dependents").code == 1
    assert shell.client.get("other").state == "waiting"


def test_unless_awaited_does_not_cancel_a_job_with_dependents(shell: Shell) -> None:
    chain(shell, "a", "b", "c")
    refused = shell("cancel", "a", "b", "--unless-awaited")

    assert refused.code == 1
    assert refused.out == ""
    assert "job a has dependents and was not cancelled; cancel them too" in refused.err
    assert shell("cancel", "a", "b", "c", "--unless-awaited").rows == [[id, "cancelled"] for id in "abc"]


def test_a_job_that_others_wait_for_is_retried_and_not_deleted(shell: Shell) -> None:
    chain(shell, "a", "b")
    shell.client.cancel("a")

    code, _, err = shell("delete", "a")
    assert (code, "has dependents and" in err) == (1, True)
    assert shell("retry", "a").rows == [["a", "waiting"]]


def test_a_job_that_would_wait_for_itself_is_not_retried(shell: Shell) -> None:
    """An id may be used again."""
    chain(shell, "b", "a")
    shell("cancel", "a", "b")
    shell("delete", "b")
    shell("enqueue", "any.task", "--id", "b", "--after", "a")

    code, _, err = shell("retry", "a")
    assert (code, "cannot be retried: it would wait for itself" in err) == (1, True)


# Moving, releasing, failing


def test_jobs_are_moved_to_another_queue_and_priority(shell: Shell) -> None:
    for id in ("one", "two"):
        shell.put(id, queue="mail")
    moved = shell("move", "--to", "post", "--priority", "-5", stdin=shell("jobs").out)

    assert {tuple(row) for row in moved.rows} == {("one", "waiting"), ("two", "waiting")}
    assert "queue post has no jobs yet" in moved.err
    assert {(job.queue, job.priority) for job in shell.client.list()} == {("post", -5)}


def test_a_job_that_runs_stays_in_its_queue(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()

    code, out, err = shell("move", "mine", "--to", "post")
    assert (code, out, "cannot change its queue" in err) == (1, "", True)
    assert shell("move", "mine", "--priority", "7").rows == [["mine", "running"]]
    assert shell("move", "mine").code == 2


def test_a_running_job_is_released(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()

    assert shell("release", "mine", "--delay", "1h", "--reason", "node is slow").rows == [["mine", "scheduled"]]
    assert "node is slow" in shell("show", "mine").out
    code, _, err = shell("release", "mine", "nobody")
    assert (code, "is not running" in err, "nobody does not exist" in err) == (1, True, True)


def test_jobs_are_failed_by_an_operator(shell: Shell) -> None:
    chain(shell, "a", "b")

    assert shell("fail", "b", "--with-group", "hopeless", "--reason", "no use", "--json").json == [
        {"id": "b", "state": "failed"}
    ]
    assert (shell.client.get("b").state, shell.client.get("b").group) == ("failed", "hopeless")
    assert "no use" in shell("show", "b").out
    assert shell("fail", "b").code == 1


@pytest.mark.parametrize("verb", ["move", "release", "fail"])
def test_no_ids_are_nothing_to_do(shell: Shell, verb: str) -> None:
    code, out, err = shell(verb, *(("--priority", "1") if verb == "move" else ()))

    assert (code, out) == (0, "")
    assert f"nothing to {verb}" in err


# All jobs of a kind


def put_some(shell: Shell) -> None:
    for number in range(3):
        shell.put(f"mail{number}", queue="mail", task="tasks.send")
    shell.put("other", queue="mail", task="tasks.other")
    shell.put("video", queue="video", task="tasks.send")


def test_a_bulk_command_applies_to_all_matching_jobs_and_counts_them(shell: Shell) -> None:
    put_some(shell)

    assert shell("move", "--all", "--queue", "mail", "--task", "tasks.send", "--to", "slow", "--yes").rows == [
        ["waiting", "3"]
    ]
    assert shell("cancel", "--all", "--queue", "slow", "--yes", "--reason", "no use").rows == [["cancelled", "3"]]
    assert "no use" in shell("show", "mail0").out
    assert shell("retry", "--all", "--state", "cancelled", "--yes", "--json").json == {"waiting": 3}
    assert shell("fail", "--all", "--queue", "slow", "--with-group", "hopeless", "--yes").rows == [["failed", "3"]]
    code, out, err = shell("retry", "--all", "--group", "other", "--yes")
    assert (code, out, err) == (0, "", "holdfast: nothing to retry: no such jobs\n")
    assert shell("retry", "--all", "--group", "hopeless", "--yes").rows == [["waiting", "3"]]
    assert shell("cancel", "--all", "--state", "waiting,blocked", "--yes").rows == [["cancelled", "5"]]
    assert shell("delete", "--all", "--task", "tasks.send", "--yes").rows == [["deleted", "4"]]
    assert [row[0] for row in shell("jobs").rows] == ["other"]


def test_refused_jobs_of_a_bulk_command_are_counted_too(shell: Shell) -> None:
    chain(shell, "a", "b")
    shell.client.cancel("a")
    shell.put("c")
    shell.client.cancel("c")

    code, out, _ = shell("delete", "--all", "--yes")
    assert (code, sorted(out.splitlines())) == (1, ["deleted\t1", "has dependents\t1"])


def test_running_jobs_are_released_all_at_once(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()

    assert shell("release", "--all", "--yes", "--delay", "1h").rows == [["scheduled", "1"]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("cancel", "--all"), "cancel all pending jobs: 5 jobs. Confirm with --yes."),
        (("cancel", "--all", "--task", "tasks.other"), "pending jobs of task tasks.other: 1 job. Confirm"),
        (("delete", "--all", "--state", "failed"), "delete all failed jobs: 0 jobs. Confirm"),
        (("cancel", "--all", "mail0"), "remove --all, or the ID 'mail0'"),
        (("cancel", "mail0", "--queue", "mail"), "--queue needs --all"),
        (("cancel", "--all", "--dependents", "--yes"), "--dependents needs IDs"),
        (("cancel", "--all", "--unless-awaited", "--yes"), "--unless-awaited needs IDs"),
        (("cancel", "a", "--unless-awaited", "--dependents"), "--dependents and --unless-awaited cannot be combined"),
        (("cancel", "--all", "--state", "wating", "--yes"), "did you mean waiting?"),
    ],
)
def test_a_bulk_command_without_filters_changes_nothing(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    put_some(shell)
    code, out, err = shell(*words)

    assert (code, out) == (2, "")
    assert expected in err
    assert shell.client.count(state="waiting") == 5


def test_all_of_a_queue_that_is_not_there_is_not_found(shell: Shell) -> None:
    put_some(shell)

    code, _, err = shell("cancel", "--all", "--queue", "vidio", "--yes")
    assert (code, "did you mean video?" in err) == (3, True)


@pytest.mark.parametrize(("answer", "left"), [("y", 1), ("n", 5), ("", 5)])
def test_a_bulk_command_asks_for_confirmation_with_the_number_of_jobs(shell: Shell, answer: str, left: int) -> None:
    put_some(shell)
    with shell.terminal("cancel", "--all", "--queue", "mail") as terminal:
        terminal.read_until("cancel all pending jobs of queue mail: 4 jobs. Continue? [y/N]:")
        terminal.type(f"{answer}\n")
        assert terminal.wait() == (0 if answer == "y" else 130)

    assert shell.client.count(state="waiting") == left


def test_a_bulk_command_that_matches_nothing_asks_nothing(shell: Shell) -> None:
    put_some(shell)

    assert "no such jobs" in shell.on_a_terminal("cancel", "--all", "--task", "tasks.none")


def test_a_bulk_command_on_thousands_of_jobs_shows_a_bar(shell: Shell) -> None:
    (shell.folder / "lines").write_text("{}\n" * 2500)
    shell("enqueue", "any.task", "--from", "lines")

    assert "2500/2500" in shell.on_a_terminal("cancel", "--all", "--yes")
    assert shell("delete", "--all", "--yes").rows == [["deleted", "2500"]]


# What queues need


def test_load_prints_the_backlog_and_the_needed_concurrency(shell: Shell) -> None:
    put_some(shell)
    shell.put("one")
    shell.put("two")
    hand = Hand(shell.client)
    hand.end(Succeed(b"1"))

    rows = {row[0]: row for row in shell("load").rows}
    assert [rows["mail"][place] for place in (2, 3, 4, 5, 6, 7)] == ["0", "4", "0", "0", "0", "0"]
    found = shell("load", "default", "mail", "--target", "30s", "--json").json
    assert [(each["queue"], each["waiting"]) for each in found["queues"]] == [("default", 1), ("mail", 4)]
    assert found["target_seconds"] == 30
    assert found["needed"] == sum(each["needed"] for each in found["queues"]) > 0
    assert shell("load", "default", "mail", "--needed").out.strip().isdecimal()
    assert "NEEDED" in shell.on_a_terminal("load")


def test_a_queue_that_is_not_there_yet_needs_nothing(shell: Shell) -> None:
    shell.put("one")

    assert shell("load", "later", "--needed").out == "0\n"


# Limits, shares, deadlines


def test_a_limit_is_made_changed_listed_and_removed(shell: Shell) -> None:
    assert shell("limits", "set", "api", "5", "--per", "1s").rows == [["api", "5 per 1s", ""]]
    assert shell("limits", "set", "api", "5", "--per", "1000ms").rows == [["api", "5 per 1s", "unchanged"]]
    assert shell("limits", "set", "gpu", "2").rows == [["gpu", "2 at once", ""]]
    assert shell("limits").rows == [
        ["api", "5", "1s", "set", "", "", "0", "0", "0"],
        ["gpu", "2", "", "set", "", "", "0", "0", "0"],
    ]

    assert shell("limits", "remove", "api").rows == [["api", "removed"]]
    code, _, err = shell("limits", "remove", "gpus")
    assert (code, "limit gpus does not exist; did you mean gpu?" in err) == (3, True)
    assert [row["limit"] for row in shell("limits", "--json").json] == ["gpu"]


@pytest.mark.parametrize(
    "words",
    [
        ("limits", "set", "a:b", "1"),
        ("limits", "set", "a", "0"),
        ("limits", "set", "a", "x"),
        ("limits", "set", "a", "1", "--per", "0s"),
    ],
)
def test_an_invalid_limit_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell(*words).code == 2
    assert shell("limits").out == ""


def test_a_declared_limit_is_overridden_for_a_while_and_reset(shell: Shell) -> None:
    shell.client.store.run(commands.declare_limit("api", 5, per=1000, revision=7))
    assert shell("limits").rows == [["api", "5", "1s", "declared", "", "", "0", "0", "0"]]

    code, _, err = shell("limits", "set", "api", "2", "--ttl", "1h")

    assert (code, "the app declares 5 per 1s; `holdfast limits reset api` returns to it" in err) == (0, True)
    (row,) = shell("limits").rows
    assert row[:5] == ["api", "2", "", "overridden", "5 per 1s"]
    (limit,) = shell("limits", "--json").json
    assert (limit["slots"], limit["source"]) == (2, "overridden")
    assert (limit["declared_slots"], limit["declared_per_seconds"]) == (5, 1)
    assert datetime.fromisoformat(limit["expires_at"]) > datetime.now(UTC)
    assert "expires" in shell("limits", "show", "api").out
    found = shell("limits", "reset", "api", "--json").json
    assert (found["slots"], found["per_seconds"], found["overrides"], found["changed"]) == (5, 1, False, True)
    assert shell("limits", "reset", "api").rows == [["api", "5 per 1s", "unchanged"]]
    assert "its workers define it again when they start" in shell("limits", "remove", "api").err


def test_that_nothing_applies_after_a_ttl_is_noted(shell: Shell) -> None:
    shell("limits", "set", "api", "5")

    err = shell("limits", "set", "api", "1", "--ttl", "1h").err

    assert "no app declares api: once this expires, nothing limits it, not even what was set before" in err
    assert "no app declares" not in shell("limits", "set", "api", "5").err
    assert "from 1ms to 3650d" in shell("limits", "set", "api", "1", "--ttl", "4000d").err


def test_a_note_tells_whether_more_jobs_hold_a_limit_or_wait(shell: Shell) -> None:
    shell("limits", "set", "gpu", "1")
    for id in ("one", "two", "three"):
        shell("enqueue", "any.task", "--id", id, "--limit", "gpu")
    hand = Hand(shell.client)
    assert (hand.take(), hand.try_to_take()) == ("one", None)

    assert "--limit shows more" in shell("limits", "show", "gpu", "--limit", "1").err
    assert shell("limits", "show", "gpu", "--limit", "2").err == ""


def test_only_a_declared_limit_is_reset(shell: Shell) -> None:
    shell("limits", "set", "api", "5")
    assert shell("limits", "reset", "apl").code == 3
    code, _, err = shell("limits", "reset", "api")
    assert (code, "limit api is not declared by an app: remove it instead" in err) == (1, True)


def test_who_holds_a_limit_and_who_waits_is_shown_and_a_slot_is_released(shell: Shell) -> None:
    shell("limits", "set", "gpu", "1")
    for id in ("one", "two"):
        shell("enqueue", "any.task", "--id", id, "--limit", "gpu:0")
    hand = Hand(shell.client)
    assert hand.take() == "one"
    assert hand.try_to_take() is None

    shown = shell("limits", "show", "gpu", "--json").json
    assert (shown["held"], shown["parked"]) == (1, 1)
    assert shown["usage"] == [{"key": "0", "held": 1, "parked": 1}]
    assert (shown["holders"], shown["waiting"]) == ([], [])  # without a key
    shown = shell("limits", "show", "gpu:0", "--json").json
    assert [(job["id"], job["executor"]) for job in shown["holders"]] == [("one", "node/worker.1")]
    assert [(job["id"], job["queue"]) for job in shown["waiting"]] == [("two", "default")]
    assert "key 0\t1 held, 1 parked" in shell("limits", "show", "gpu").out
    assert "holder\tone any.task on node/worker.1, since " in shell("limits", "show", "gpu:0").out
    assert "waiting\ttwo any.task in queue default, since " in shell("limits", "show", "gpu:0").out
    assert shell("limits", "show", "gpu:0").err == ""
    assert shell("limits", "show", "gpus").code == 3

    assert shell("limits", "release", "gpu:0", "one").rows == [["gpu:0", "one", "released"]]
    assert hand.take() == "two"
    code, _, err = shell("limits", "release", "gpu:0", "one")
    assert (code, "job one does not hold a slot of limit gpu:0" in err) == (1, True)
    assert "its slot of limit gpu:0 was released" in shell("show", "one").out
    with redis.Redis.from_url(shell.client.address.url or "") as client:
        client.delete(f"hf:{{{shell.client.address.namespace}}}:j:two")
    assert "holder\ttwo, whose record cannot be read" in shell("limits", "show", "gpu:0").out


def test_a_throttled_job_shows_its_limit(shell: Shell) -> None:
    shell("limits", "set", "api", "1")
    for id in ("one", "two"):
        shell("enqueue", "any.task", "--id", id, "--limit", "api", "--limit", "other:key")
    hand = Hand(shell.client)
    assert hand.take() == "one"
    assert hand.try_to_take() is None

    assert shell("limits").rows == [
        ["api", "1", "", "set", "", "", "1", "1", "1"],
        ["other", "not defined", "", "", "", "", "1", "0", "0"],
    ]
    job = shell("show", "two", "--json").json
    assert (job["state"], job["throttled_by"], job["limits"]) == ("throttled", "api", ["api", "other:key"])
    assert "throttled\tlimit api has no free slot" in shell("show", "two").out
    assert "waits for limit api" in shell("jobs", "--state", "throttled").out
    assert shell("queues", "--json").json[0]["throttled"] == 1
    assert "1 job waited for it" in shell("limits", "remove", "api").err


def test_a_note_warns_of_an_undefined_limit(shell: Shell) -> None:
    shell("limits", "set", "api", "1")

    shown = shell.on_a_terminal("enqueue", "any.task", "--limit", "apy:acme", "--limit", "api", columns=200)
    assert "limit apy is not defined, so it has no effect; did you mean api?" in shown
    assert "limit api is not" not in shown


def test_shares_of_a_queue_are_weighed(shell: Shell) -> None:
    assert shell("limits", "share", "mail", "acme", "3", "--create").rows == [["mail", "acme", "3", ""]]
    assert shell("limits", "share", "mail", "acme", "3").rows == [["mail", "acme", "3", "unchanged"]]
    for number in range(6):
        for share in ("acme", "tiny"):
            shell("enqueue", "any.task", "--id", f"{share}{number}", "--share", share, "--queue", "mail")

    order = [job["share"] for job in shell("peek", "mail", "--limit", "4", "--json").json]
    assert order.count("acme") == 3
    assert shell("limits", "share", "mail", "acme", "101").code == 2


def test_a_deadline_is_a_duration_or_a_time(shell: Shell) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    shell("enqueue", "any.task", "--id", "one", "--deadline", "1h30m")
    shell("enqueue", "any.task", "--id", "two", "--deadline", tomorrow.isoformat())

    first, second = shell.client.get("one"), shell.client.get("two")
    assert first.deadline == first.created_at + timedelta(minutes=90)
    assert second.deadline == tomorrow
    assert re.search(r"deadline\t20\d\d-", shell("show", "one").out)
    assert shell("enqueue", "any.task", "--deadline", "soon").code == 2


def test_a_worker_runs_a_chain_that_was_made_here(shell: Shell) -> None:
    shell("limits", "set", "one", "1")
    first = shell("enqueue", "add", "1", "--app", "tasks", "--limit", "one").out.strip()
    last = shell("enqueue", "add", "2", "--app", "tasks", "--limit", "one", "--after", first).out.strip()
    with running_worker(shell, "--burst"):
        assert shell("wait", first, last, "--timeout", "30s").code == 0

    (dependency,) = shell("show", last, "--json").json["after"]
    assert (dependency["id"], dependency["state"], dependency["ended_at"] is not None) == (first, "succeeded", True)


@pytest.mark.parametrize(
    "words", [("limits",), ("limits", "set", "api", "1"), ("limits", "share", "mail", "acme", "3", "--create")]
)
def test_limits_are_a_table_on_a_terminal(shell: Shell, words: tuple[str, ...]) -> None:
    if words == ("limits",):
        assert "no limits" in shell.on_a_terminal("limits")
        shell("limits", "set", "api", "5", "--per", "1s")
        assert re.search(r"api +5 +1s", shell.on_a_terminal("limits"))
    else:
        assert words[2] in shell.on_a_terminal(*words)
