"""Schedules from the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from holdfast import every
from holdfast.store import commands
from tests.support.shells import EVIL, Shell, running_worker, wait_until

NIGHTLY = ("schedules", "add", "nightly", "tasks.report", "--cron", "0 2 * * *", "--tz", "Europe/Berlin")


def test_a_schedule_is_made_listed_and_removed(shell: Shell) -> None:
    assert shell(*NIGHTLY, "--queue", "reports", "day=monday", "--priority", "5").code == 0

    (row,) = shell("schedules").rows
    assert row[:4] == ["nightly", "0 2 * * * Europe/Berlin", "tasks.report", "reports"]
    assert datetime.fromisoformat(row[4]) > datetime.now(UTC)
    assert row[5:] == ["", "active", "set"]
    assert shell("schedules", "list").rows == [row]
    assert shell("schedules", "remove", "nightly").rows == [["nightly", "removed"]]
    assert shell("schedules").out == ""


def test_adding_the_same_schedule_changes_nothing_and_another_replaces_it(shell: Shell) -> None:
    assert shell(*NIGHTLY).err == ""
    assert "is unchanged" in shell(*NIGHTLY).err

    other = shell("schedules", "add", "nightly", "tasks.report", "--every", "1h", "--offset", "5m")
    assert (other.rows[0][1], "changed the existing schedule" in other.err) == ("every 1h, offset 5m", True)
    (found,) = shell("schedules", "--json").json
    assert (found["cron"], found["every_seconds"], found["offset_seconds"]) == (None, 3600, 300)


def test_the_arguments_are_those_of_enqueue(shell: Shell) -> None:
    shell("schedules", "add", "greeting", "greet", "ann", "on=2024-02-29", "--app", "tasks", "--every", "1h")
    shell("schedules", "add", "any", "any.task", "n=1", "--every", "1h", "--retries", "7", "--limit", "api")

    greeting, any_ = (shell("schedules", "show", name, "--json").json for name in ("greeting", "any"))
    assert (greeting["task"], greeting["queue"]) == ("tasks.greet", "post")
    assert greeting["arguments"] == {"name": "ann", "on": "2024-02-29"}
    assert (any_["arguments"], any_["options"]) == ({"n": 1}, {"retries": 7, "limits": ["api"]})


def test_the_next_firings_are_shown_in_its_zone_and_in_utc(shell: Shell) -> None:
    shell(*NIGHTLY)
    text = shell("schedules", "show", "nightly").out
    firings = shell("schedules", "show", "nightly", "--json").json["firings"]

    assert len(firings) == 10
    assert {firing["local"][11:19] for firing in firings} <= {"02:00:00", "03:00:00"}  # it leaps over two in spring
    assert text.count("next\t") == 10
    assert f"{firings[0]['local']} Europe/Berlin, {firings[0]['at'][:19]}" in text
    assert len(shell("schedules", "show", "nightly", "--limit", "3", "--json").json["firings"]) == 3


def test_a_schedule_is_paused_and_resumed(shell: Shell) -> None:
    shell(*NIGHTLY)

    assert shell("schedules", "pause", "nightly").rows[0][4:] == ["", "", "paused", "set"]
    assert "is unchanged" in shell("schedules", "pause", "nightly").err
    assert shell("schedules", "show", "nightly", "--json").json["firings"] == []
    assert shell("schedules", "resume", "nightly", "--json").json["paused"] is False


def test_a_triggered_job_shows_its_schedule(shell: Shell) -> None:
    shell(*NIGHTLY, "--share", "acme")
    id = shell("schedules", "trigger", "nightly").out.strip()

    job = shell("show", id, "--json").json
    assert (job["schedule"], job["task"], job["share"]) == ("nightly", "tasks.report", "acme")
    assert shell("schedules", "--json").json[0]["last_job"] == id
    assert "schedule\tnightly" in shell("show", id).out


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "trigger", "remove"])
def test_a_schedule_that_is_not_there_is_not_found(shell: Shell, verb: str) -> None:
    shell(*NIGHTLY)
    code, out, err = shell("schedules", verb, "nightli")

    assert (code, out) == (3, "")
    assert "schedule nightli does not exist; did you mean nightly?" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "either cron or every"),
        (("--cron", "0 2 * * *", "--every", "1h"), "either cron or every"),
        (("--cron", "0 25 * * *"), "cron is '0 25 * * *'"),
        (("--cron", "0 2 * * *", "--tz", "Europe/Berln"), "did you mean Europe/Berlin"),
        (("--every", "1h", "--tz", "UTC"), "tz is given with every"),
        (("--every", "10ms"), "--every is '10ms'; it must be from 1s"),
        (("--every", "1h", "--deadline", "2030-01-01"), "expected --deadline as a duration"),
        (("--every", "1h", "--missed", "none"), "'none' is not one of"),
        (("--every", "1h", "word"), "expected name=value, got 'word'"),
    ],
)
def test_an_invalid_schedule_is_refused(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    code, out, err = shell("schedules", "add", "nightly", "any.task", *words)

    assert (code, out) == (2, "")
    assert expected in err
    assert shell("schedules").out == ""


def test_an_unknown_subcommand_is_answered_with_the_known_ones(shell: Shell) -> None:
    code, _, err = shell("schedules", "run", "nightly")

    assert (code, "expected one of list, show, add, reset, pause, resume, trigger, remove" in err) == (2, True)


def test_schedules_are_a_table_on_a_terminal(shell: Shell) -> None:
    assert "no schedules" in shell.on_a_terminal("schedules")
    shell(*NIGHTLY)

    shown = shell.on_a_terminal("schedules")
    assert "SCHEDULE" in shown
    assert "in " in shown
    assert "Europe/Berlin" in shell.on_a_terminal("schedules", "show", "nightly")


def test_control_characters_of_arguments_never_reach_the_terminal(shell: Shell) -> None:
    shell("schedules", "add", "nightly", "any.task", f"x={EVIL}", "--every", "1h")

    text = shell.on_a_terminal("schedules", "show", "nightly", NO_COLOR="1", columns=400)
    assert text.replace("\n", "").isprintable()
    assert "[31mred" in text


def test_an_app_with_an_address_of_its_own_uses_that(shell: Shell) -> None:
    url, namespace = shell.environ.pop("HOLDFAST_URL"), shell.environ.pop("HOLDFAST_NAMESPACE")
    app = (shell.folder / "tasks.py").read_text()
    (shell.folder / "own.py").write_text(app.replace("Holdfast()", f"Holdfast({url!r}, namespace={namespace!r})"))
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "none")

    shown = shell.on_a_terminal("schedules", "add", "sum", "add", "1", "--app", "own", "--every", "1h")
    assert "every 1h" in shown
    assert [each.name for each in shell.client.schedules()] == ["sum"]
    assert not (shell.folder / "none").exists()


def test_help_of_the_group_is_not_the_list(shell: Shell) -> None:
    for words in (("schedules", "--help"), ("schedules", "-h")):
        assert "trigger" in shell(*words).out


def test_a_worker_fires_what_was_scheduled_here(shell: Shell) -> None:
    shell("schedules", "add", "sum", "add", "1", "2", "--app", "tasks", "--every", "1s")
    with running_worker(shell):
        wait_until(lambda: shell.client.count(state="succeeded") > 0)

    found = json.loads(shell("schedules", "--json").out)[0]
    assert found["fired"] > 0
    assert shell("show", found["last_job"], "--json").json["schedule"] == "sum"


def test_a_declared_schedule_is_overridden_and_reset(shell: Shell) -> None:
    batch = {"queue": "default", "task": "tasks.report"}
    shell.client.store.run(
        commands.declare_schedule("tasks.report", batch, b"[]", 3, **every("1h").arguments()),
    )
    assert shell("schedules").rows[0][-1] == "declared"

    code, _, err = shell("schedules", "add", "tasks.report", "tasks.report", "--cron", "0 2 * * *")

    assert (code, "`holdfast schedules reset tasks.report` returns to that" in err) == (0, True)
    assert shell("schedules").rows[0][-1] == "overridden"
    shown = shell("schedules", "show", "tasks.report", "--json").json
    assert (shown["cron"], shown["source"], shown["declared_when"], shown["revision"]) == (
        "0 2 * * *",
        "overridden",
        "every 1h",
        3,
    )
    assert "declared\tevery 1h" in shell("schedules", "show", "tasks.report").out
    assert shell("schedules", "reset", "tasks.report", "--json").json["every_seconds"] == 3600
    assert "is unchanged" in shell("schedules", "reset", "tasks.report").err
    assert "workers add it again when they start" in shell("schedules", "remove", "tasks.report").err


def test_only_a_declared_schedule_is_reset(shell: Shell) -> None:
    shell(*NIGHTLY)
    assert shell("schedules", "reset", "nightl").code == 3
    code, _, err = shell("schedules", "reset", "nightly")
    assert (code, "not declared by an app: remove it instead" in err) == (1, True)
