"""The command line on a terminal: tables, colour, and text that terminals must not interpret."""

from __future__ import annotations

import json
import re

import pytest

from holdfast.job.outcome import Error
from holdfast.store import commands
from tests.support.new_job import NewJob
from tests.support.shells import ESCAPE, EVIL, Hand, Shell, failure, wait_for_another_millisecond


def test_tables_and_colour_are_for_terminals_only(shell: Shell) -> None:
    shell.put("mine")
    shell.client.cancel("mine")
    shell.put("other")

    shown, piped = shell.on_a_terminal("jobs"), shell("jobs").out
    assert "STATE" in shown
    assert f"{ESCAPE}33mwaiting" in shown
    assert "STATE" not in piped
    assert ESCAPE not in piped
    assert "other\ttasks.add\tdefault\twaiting" in piped


def test_a_terminal_can_have_plain_text_json_and_no_colour(shell: Shell) -> None:
    shell.put("mine")

    assert shell.on_a_terminal("jobs", "--plain") == shell("jobs").out
    assert json.loads(shell.on_a_terminal("jobs", "--json"))[0]["id"] == "mine"
    assert f"{ESCAPE}33m" not in shell.on_a_terminal("jobs", NO_COLOR="1")


def test_ids_are_whole_on_a_narrow_terminal(shell: Shell) -> None:
    shell.put("0123456789abcdef", task="a.very.long.name.of.a.task.that.does.not.fit.at.all", queue="q" * 60)

    assert "0123456789abcdef" in shell.on_a_terminal("jobs", columns=60)


def test_an_empty_list_prints_a_note_on_a_terminal(shell: Shell) -> None:
    for name in ("jobs", "queues", "workers"):
        assert f"no {name}" in shell.on_a_terminal(name)


def test_every_view_works_on_a_terminal(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(), "g", delay=0))

    assert "attempt 1" in shell.on_a_terminal("show", "mine")
    assert "WAITING" in shell.on_a_terminal("queues")
    assert "enqueued" in shell.on_a_terminal("events")
    assert "paused" in shell.on_a_terminal("queues", "pause", "default")


@pytest.mark.parametrize("words", [("show", "mine"), ("jobs",), ("workers",), ("show", "mine", "--json")])
def test_control_characters_of_job_data_never_reach_the_terminal(shell: Shell, words: tuple[str, ...]) -> None:
    shell.put("mine", payload=json.dumps({EVIL: EVIL}).encode())
    hand = Hand(shell.client)
    hand.end(Error(failure(EVIL), "g", delay=0))
    hand.take()
    held = commands.Lease("node/worker.1", "mine", 2)
    shell.client.store.run(commands.save(held, json.dumps(EVIL).encode(), progress=json.dumps({"message": EVIL})))
    about = json.dumps({"app": EVIL, "queues": [EVIL]})
    shell.client.store.run(commands.renew("node/worker", [held], about=about))

    piped, shown = shell(*words).out, shell.on_a_terminal(*words, NO_COLOR="1", columns=400)
    for text in (piped, shown):
        assert re.sub(r"\x1b\[[01]m", "", text).replace("\n", "").replace("\t", "").isprintable()
        assert "[31mred" in text
        assert "[bold]b[/bold]" in text
    if "--json" in words:
        assert json.loads(piped)["arguments"] == {EVIL: EVIL}


def test_an_error_of_a_job_is_escaped_wherever_it_is_printed(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(EVIL), "g", final=True))
    code, _, err = shell("enqueue", "tasks.add", "--id", "mine", "--wait")

    assert code == 1
    assert r"\x1b[31mred" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("words", [("jobs",), ("show", "mine"), ("queues",), ("events",), ("doctor",)])
def test_without_colour_there_is_no_bold_either(shell: Shell, words: tuple[str, ...]) -> None:
    shell.put("mine")

    assert f"{ESCAPE}1m" in shell.on_a_terminal(*words) or words == ("events",)
    assert ESCAPE not in shell.on_a_terminal(*words, NO_COLOR="1")


def test_a_bar_without_colour_moves_the_cursor_only(shell: Shell) -> None:
    (shell.folder / "lines").write_text('{"x": 1}\n' * 1500)
    shown = shell.on_a_terminal("enqueue", "any.task", "--from", "lines", NO_COLOR="1")

    assert "1500/" in shown
    assert not re.search(r"\x1b\[[0-9;]*m", shown)


def test_settings_are_whole_on_a_narrow_terminal_and_their_meaning_is_wrapped(shell: Shell) -> None:
    shown = shell.on_a_terminal("config", columns=110)

    assert re.search(r"keep_failed_count +100000 +100000 +0 +1000000000 +default", shown)
    assert "…" not in shown


def test_the_meaning_of_a_setting_stands_below_it_where_the_terminal_is_narrow(shell: Shell) -> None:
    """At 80 columns it had room for one word in a line."""
    lines = shell.on_a_terminal("config", columns=80, NO_COLOR="1").splitlines()
    settings = {each.name: each for each in shell.client.config()}
    rows = [place for place, line in enumerate(lines) if line[0] != " " and line.split()[0] in settings]

    assert re.match(r"NAME +VALUE +DEFAULT +MIN +MAX +SOURCE *$", lines[0])
    assert [lines[place].split()[0] for place in rows] == list(settings)
    for first, last in zip(rows, [*rows[1:], len(lines)], strict=True):
        below = [line.rstrip() for line in lines[first + 1 : last]]
        assert all(line.startswith("    ") for line in below)
        assert " ".join(" ".join(below).split()) == settings[lines[first].split()[0]].explanation


def test_the_number_of_workers_of_a_queue_is_shown_when_there_are_none(shell: Shell) -> None:
    shell.put("mine")
    title, row = (line.split() for line in shell.on_a_terminal("queues", NO_COLOR="1").splitlines())

    assert title == ["QUEUE", "WORKERS", "WAITING"]
    assert row == ["default", "active", "0", "1"]


def test_a_terminal_shows_times_and_how_long_ago_they_were(shell: Shell) -> None:
    shell.put("mine")
    shell.client.note("mine", "looked at")
    hand = Hand(shell.client)
    hand.end(Error(failure(), "g", delay=3_600_000))
    shown = shell.on_a_terminal("show", "mine", NO_COLOR="1", columns=200)

    time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.search(rf"created +{time} \([\d.]+m?s ago\)", shown)
    assert re.search(rf"due +{time} \(in (60m|[\d.]+s)\)", shown)
    assert re.search(rf"{time} +claimed +attempt 1, in queue default.*, by ", shown)
    assert re.search(rf"{time} +noted +looked at, by ", shown)
    assert re.search(rf"created\t{time}\n", shell("show", "mine").out)


def test_what_a_job_does_not_have_is_not_shown(shell: Shell) -> None:
    shell.put("mine")

    assert "limits" not in shell("show", "mine").out
    assert "limits" not in shell.on_a_terminal("show", "mine")


def test_a_terminal_shows_when_a_schedule_fires_next_and_how_soon(shell: Shell) -> None:
    shell("schedules", "add", "nightly", "any.task", "--cron", "0 2 * * *", "--tz", "Europe/Berlin")

    shown = shell.on_a_terminal("schedules", "show", "nightly", NO_COLOR="1", columns=200)
    assert re.search(r"next +20\S+T02:00:00\S+ Europe/Berlin, 20\S+Z \(in \d+[dhms]\)", shown)


def test_one_job_needs_no_bar(shell: Shell) -> None:
    shell.put("mine")

    assert "━" not in shell.on_a_terminal("cancel", "mine")
    assert "━" not in shell.on_a_terminal("wait", "mine")


def test_jobs_of_several_states_are_in_the_order_of_time_on_a_terminal_too(shell: Shell) -> None:
    """Jobs that are scheduled are kept in the order in which they are due."""
    for id, delay in (("late", 3_600_000), ("soon", 60_000)):
        job = NewJob(id=id, payload=b"{}", queue="default", task="t", delay=delay)
        shell.client.store.run(commands.enqueue([job]))
        wait_for_another_millisecond(shell.client)
    shell.put("now")

    assert [line.split()[0] for line in shell.on_a_terminal("jobs").splitlines()[1:4]] == ["now", "soon", "late"]


def test_a_note_warns_that_the_options_of_a_task_are_unknown_without_its_app(shell: Shell) -> None:
    shown = shell.on_a_terminal("enqueue", "any.task", columns=400)

    assert "without --app (or HOLDFAST_APP), options that any.task declares do not apply" in shown
    assert "are unknown" not in shell("enqueue", "any.task").err
