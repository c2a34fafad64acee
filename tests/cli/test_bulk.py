"""Many jobs from the command line: enqueue, act on and wait for them; ids from pipes, bars on terminals."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest

from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from tests.support.new_job import NewJob
from tests.support.shells import PROGRAM, Hand, Shell, failure, running_worker

# Steering


def test_ids_come_from_a_pipe_as_the_first_column_of_each_line(shell: Shell) -> None:
    for id in ("one", "two", "three"):
        shell.put(id)
    listed = shell("jobs").out

    assert {row[0] for row in shell("cancel", stdin=listed).rows} == {"one", "two", "three"}
    assert shell("retry", "-", stdin="one\n\n two \n").rows == [["one", "waiting"], ["two", "waiting"]]
    assert shell("delete", stdin="three\n").rows == [["three", "deleted"]]


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete", "wait"])
def test_no_ids_are_nothing_to_do_in_a_pipe_and_a_mistake_on_a_terminal(shell: Shell, verb: str) -> None:
    code, out, err = shell(verb)
    assert (code, out) == (0, "")
    assert err.startswith(f"holdfast: nothing to {verb}")

    assert "expected ID" in shell.on_a_terminal(verb)


def test_thousands_are_steered_and_each_is_answered_for(shell: Shell) -> None:
    ids = [f"job-{number:04}" for number in range(2500)]
    jobs = [NewJob(id=id, payload=b"{}", queue="default", task="tasks.add") for id in ids]
    for first in range(0, 2500, 1000):
        shell.client.store.run(commands.enqueue(jobs[first : first + 1000]))
    lines = "".join(f"{id}\n" for id in [*ids, "nobody"])

    cancelled = shell("cancel", stdin=lines)
    assert (cancelled.code, [row[0] for row in cancelled.rows]) == (3, ids)
    assert shell("count", "--state", "cancelled").out == "2500\n"
    assert len(shell("delete", *ids[:1500]).rows) == 1500
    assert shell("count").out == "1000\n"


def test_refusals_are_objects_with_the_id_when_asked_for_json(shell: Shell) -> None:
    shell.put("mine")
    code, out, err = shell("retry", "mine", "nobody", "--json")

    assert (code, json.loads(out)) == (1, [])
    refusals = [json.loads(line) for line in err.splitlines()]
    assert [(each["id"], each["code"]) for each in refusals] == [("mine", "STATE"), ("nobody", "NOTFOUND")]


def test_an_id_that_is_cut_or_mistyped_leads_to_a_question_and_never_to_a_job(shell: Shell) -> None:
    shell.put("0QwErTyUiOpAsDfG")
    shell.put("0QwErTyUzzzzzzzz")

    for verb in ("show", "cancel", "retry", "delete", "wait"):
        code, out, err = shell(verb, "0QwErTyUiOp")
        assert (code, out) == (3, "")
        assert "did you mean 0QwErTyUiOpAsDfG?" in err
    assert "did you mean 0QwErTyUiOpAsDfG?" in shell("show", "0QwErTyUi0pAsDfG").err
    assert "did you mean" not in shell("show", "0QwErTyUabcdefgh").err


# Waiting


def test_wait_prints_the_outcome_of_each_job_as_it_ends(shell: Shell) -> None:
    for id in ("good", "bad", "gone"):
        shell.put(id)
    hand = Hand(shell.client)
    waiting = subprocess.Popen(
        [*PROGRAM, "wait", "good", "bad", "gone", "nobody"], env=shell.environ, stdout=subprocess.PIPE, text=True
    )
    assert waiting.stdout
    with waiting.stdout as out:
        for id, outcome in (("good", Succeed(b"1")), ("bad", Error(failure(), "g", final=True))):
            hand.end(outcome)
            assert out.readline().split() == [id, "succeeded" if id == "good" else "failed"]
        shell.client.cancel("gone")
        assert out.readline().split() == ["gone", "cancelled"]
    assert waiting.wait() == 3


def test_wait_says_that_a_job_was_deleted_meanwhile(shell: Shell) -> None:
    for id in ("brief", "last"):
        shell("enqueue", "tasks.add", "--id", id, "--keep", "no")
    hand = Hand(shell.client)
    waiting = subprocess.Popen(
        [*PROGRAM, "wait", "brief", "last", "nobody"], env=shell.environ, stderr=subprocess.PIPE, text=True
    )
    assert waiting.stderr
    with waiting.stderr as err:
        assert "job nobody does not exist" in err.readline()
        for id in ("brief", "last"):
            hand.end(Succeed(b"1"))
            assert f"job {id} was deleted meanwhile, so its outcome is unknown" in err.readline()
    assert waiting.wait() == 3


def test_wait_for_what_has_succeeded_is_over_at_once(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Succeed(b"1"))
    done = shell("wait", "mine", "--json")

    assert (done.code, done.json) == (0, {"id": "mine", "state": "succeeded"})


@pytest.mark.parametrize(("head", "code"), [(b"\x02", "NEWER"), (b"\x00", "DAMAGED")])
def test_wait_does_not_wait_for_a_job_that_cannot_be_read(shell: Shell, head: bytes, code: str) -> None:
    for id in ("mine", "odd"):
        shell.put(id)
    Hand(shell.client).end(Succeed(b"1"))
    shell.client.store.execute("HSET", shell.client.store.address.key.replace("meta", "j:odd"), "h", head * 20)
    ended = shell("wait", "odd", "mine", "--timeout", "10s", "--json")

    assert (ended.code, ended.json) == (1, {"id": "mine", "state": "succeeded"})
    error = json.loads(ended.err)
    assert (error["code"], error["id"]) == (code, "odd")
    assert "job odd cannot be read: " in error["message"]


def test_wait_ends_when_the_time_is_over(shell: Shell) -> None:
    shell.put("mine")
    code, out, err = shell("wait", "mine", "--timeout", "50ms")

    assert (code, out) == (5, "")
    assert "before 1 of 1 job ended" in err


# Storing


def lines(count: int) -> str:
    return "".join(f'{{"x": {number}}}\n' for number in range(count))


def test_a_job_is_stored_for_each_line(shell: Shell) -> None:
    code, out, err = shell("enqueue", "any.task", "--from", "-", "--queue", "bulk", stdin='{"x": 1}\n\n{"y": "two"}\n')

    waits = "holdfast: the job waits: no worker is running; start one: `holdfast work APP --queues bulk`\n"
    assert (code, err) == (0, waits)
    stored = [shell.client.get(id) for id in out.split()]
    assert [(job.payload, job.queue) for job in stored] == [(b'{"x":1}', "bulk"), (b'{"y":"two"}', "bulk")]


def test_with_the_app_each_line_is_checked_by_the_signature(shell: Shell) -> None:
    done = shell(
        "enqueue", "greet", "--app", "tasks", "--from", "-", "--json", stdin='{"name": "ann", "on": "2024-02-29"}'
    )

    assert done.json["created"] is True
    assert shell.client.get(done.json["id"]).payload == b'{"name":"ann","on":"2024-02-29"}'


@pytest.mark.parametrize(
    ("words", "line", "expected"),
    [
        (("add", "--app", "tasks"), '{"x": "one"}', "line 2: argument 'x'"),
        (("add", "--app", "tasks"), '{"z": 1}', "line 2: task tasks.add"),
        (("any.task",), "not json", "line 2: expected a JSON object with the arguments"),
        (("any.task",), "[1]", "line 2: expected a JSON object with the arguments"),
        (("any.task", "--id", "{y}"), '{"x": 1}', "line 2: --id contains {y}, which is not an argument of this line"),
        (("any.task", "--id", "{x}"), '{"x": "a b"}', "line 2: id is 'a b'"),
        (("any.task", "x=1"), '{"x": 1}', "--from contains the arguments"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_stored(
    shell: Shell, words: tuple[str, ...], line: str, expected: str
) -> None:
    first = '{"x": 1, "y": 1}\n'
    code, out, err = shell("enqueue", *words, "--from", "-", stdin=f"{first}{line}\n")

    assert (code, out) == (2, "")
    assert expected in err
    assert shell.client.count() == 0


def test_lines_before_an_invalid_one_are_stored_in_thousands_and_their_number_is_printed(shell: Shell) -> None:
    code, out, err = shell("enqueue", "any.task", "--from", "-", stdin=f"{lines(1500)}oh\n")

    assert (code, len(out.splitlines())) == (2, 1000)
    assert "line 1501: " in err
    assert "stored before it: 1,000 jobs" in err
    assert shell.client.count() == 1000


def test_with_ids_of_a_pattern_a_file_can_be_sent_again(shell: Shell) -> None:
    (shell.folder / "people.jsonl").write_text(lines(3))
    words = ("enqueue", "any.task", "--from", "people.jsonl", "--id", "mail-{x}/{line}")

    assert shell(*words).out.split() == ["mail-0/1", "mail-1/2", "mail-2/3"]
    again = shell(*words)
    assert (again.code, again.out.split()) == (0, ["mail-0/1", "mail-1/2", "mail-2/3"])
    assert again.err.startswith("holdfast: already existed: 3 jobs\nholdfast: the job waits: no worker is running")
    assert shell.client.count() == 3


def test_a_file_that_is_not_there_is_a_usage_error(shell: Shell) -> None:
    code, _, err = shell("enqueue", "any.task", "--from", "nowhere.jsonl")

    assert (code, "nowhere.jsonl" in err) == (2, True)


def test_many_are_stored_and_waited_for(shell: Shell) -> None:
    words = ("enqueue", "add", "--app", "tasks", "--from", "-", "--wait", "--timeout", "60s")
    with running_worker(shell):
        done = shell(*words, stdin=lines(20))

    assert (done.code, {row[1] for row in done.rows}, len(done.rows)) == (0, {"succeeded"}, 20)


# Bars


def test_long_commands_have_a_bar_on_a_terminal_and_none_in_a_pipe(shell: Shell) -> None:
    (shell.folder / "people.jsonl").write_text(lines(2500))
    program = shlex.join(PROGRAM)

    stored = shell.on_a_terminal("enqueue", "any.task", "--from", "people.jsonl")
    assert re.search(r"enqueue .*2500/", stored)
    assert "stored 2,500 jobs" in stored
    line = f"{program} jobs | {program} cancel > answers"
    cancelled = shell.on_a_terminal("/bin/bash", "-c", line)
    assert re.search(r"cancel .*2500/2500", cancelled)
    answers = (shell.folder / "answers").read_text()
    assert (answers.count("\tcancelled\n"), "\x1b" in answers) == (2500, False)
    assert shell("retry", *(f"{number}" for number in range(3))).err.count("\n") == 3
