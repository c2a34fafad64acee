"""`holdfast events` and `holdfast subscriptions`."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from holdfast import Event, Holdfast
from holdfast.events.types import TYPES
from holdfast.store import commands
from tests.support.shells import EVIL, PROGRAM, Shell


def lines(shell: Shell, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell("events", *words, "--json").out.splitlines()]


def test_events_are_lines(shell: Shell) -> None:
    shell.put("mine", queue="post")
    shell.client.cancel("mine", reason="too late")

    rows = [(row[1], *row[3:]) for row in shell("events").rows]
    assert rows == [("enqueued", "post", "mine", ""), ("cancelled", "post", "mine", "reason=too late")]
    last = json.loads(shell("events", "--limit", "1", "--json").out)
    assert (last["type"], last["queues"], last["jobs"]) == ("cancelled", ["post"], ["mine"])
    assert last["details"] == [{"reason": "too late"}]


def test_events_are_followed_until_interrupted(shell: Shell) -> None:
    follow = subprocess.Popen(
        [*PROGRAM, "events", "--follow"], env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert follow.stdout
    shell.put("one")
    assert b"one" in follow.stdout.readline()
    shell.put("two")
    assert b"two" in follow.stdout.readline()
    follow.send_signal(signal.SIGINT)

    out, err = follow.communicate()
    assert (follow.returncode, out, err.strip()) == (0, b"", b"")


def test_each_filter_selects_jobs(shell: Shell) -> None:
    shell.put("a", queue="post")
    shell.put("b", queue="web")
    shell.client.cancel("b")
    shell.client.pause("web")

    def found(*words: str) -> list[tuple[str, str]]:
        return [(line["type"], line["jobs"][0]) for line in lines(shell, *words)]

    assert found("--queue", "web") == [("enqueued", "b"), ("cancelled", "b"), ("paused", "web")]
    assert found("--job", "a") == [("enqueued", "a")]
    assert found("--type", "cancelled", "--type", "paused") == [("cancelled", "b"), ("paused", "web")]
    assert found("--queue", "web", "--type", "enqueued") == [("enqueued", "b")]
    assert (
        found("--worker", "node/none")
        == found("--tag", "none")
        == found("--scope", "/none")
        == found("--tracked")
        == []
    )


def test_reading_goes_on_after_an_event(shell: Shell) -> None:
    for id in "abc":
        shell.put(id)
    first, second, third = lines(shell)
    assert lines(shell, "--after", first["event"]) == [second, third]
    assert lines(shell, "--after", "start") == [first, second, third]
    assert lines(shell, "--after", "start", "-n", "2") == [first, second]
    assert lines(shell, "--after", third["event"]) == []


def test_a_gap_is_a_line(shell: Shell) -> None:
    shell.put("a")
    [first] = lines(shell)
    shell.client.configure({"events": 100})
    for _ in range(300):
        shell.client.pause("default")
        shell.client.resume("default")
    gap, *rest = lines(shell, "--after", first["event"])
    assert (gap["type"], gap["details"]) == ("gap", [{"after": first["event"]}])
    assert len(rest) >= 100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--type", "faild"), "did you mean failed"),
        (("--queue", "a b"), "queue"),
        (("--scope", "acme"), "/acme"),
        (("--after", "yesterday"), "after"),
    ],
)
def test_a_wrong_option_is_a_usage_error(shell: Shell, words: tuple[str, ...], message: str) -> None:
    code, out, err = shell("events", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_a_text_from_a_job_cannot_write_to_the_terminal(shell: Shell) -> None:
    shell.put("a")
    shell.client.cancel("a", reason=EVIL)
    out = shell("events").out
    assert "\x1b" not in out
    assert "\\x1b[31mred" in out


def test_types_are_completed_and_explained() -> None:
    from holdfast.cli.completers import complete_event_type

    offered = complete_event_type(None, None, "ca")  # type: ignore[arg-type]
    assert [each.value for each in offered] == [each.name for each in TYPES if each.name.startswith("ca")]
    assert all(each.help for each in offered)


# Subscriptions


@pytest.fixture
def alert(shell: Shell) -> str:
    app = Holdfast()

    @app.on("failed", queue="mail")
    @app.task(name="tasks.alert", queue="alerts")
    def handler(event: Event) -> None: ...

    shell.client.store.run(commands.declare_subscription(**app.declared_subscriptions["tasks.alert"]))
    return "tasks.alert"


def test_subscriptions_are_listed(shell: Shell, alert: str) -> None:
    [row] = shell("subscriptions").rows
    assert row[:5] == [alert, "failed queue=mail", alert, "alerts", "0"]
    assert "active" in row
    [record] = shell("subscriptions", "--json").json
    assert (record["subscription"], record["paused"], record["worker"]) == (alert, False, None)


def test_a_subscription_is_paused_resumed_and_removed(shell: Shell, alert: str) -> None:
    assert shell("subscriptions", "pause", alert, "--json").json["paused"]
    again = shell("subscriptions", "pause", alert)
    assert (again.code, "unchanged" in again.err) == (0, True)
    assert not shell("subscriptions", "resume", alert, "--json").json["paused"]
    assert shell("subscriptions", "remove", alert, "--json").json == {"subscription": alert, "removed": True}
    code, _, err = shell("subscriptions", "pause", alert)
    assert (code, "there are no subscriptions" in err) == (3, True)


def test_a_name_that_is_misspelt_is_corrected(shell: Shell, alert: str) -> None:
    code, _, err = shell("subscriptions", "pause", alert[:-1])
    assert (code, alert in err) == (3, True)


def test_pausing_a_subscription_names_who_did_it(shell: Shell, alert: str) -> None:
    shell("subscriptions", "pause", alert)
    [event] = lines(shell, "--type", "paused")
    assert event["jobs"] == [alert]
    assert event["details"] == [{"what": "subscription"}]
    assert "@" in event["who"]
