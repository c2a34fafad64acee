"""List, show and act on jobs from the command line."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest
import redis

from holdfast import JobFailed
from holdfast.job.failure import Failure
from holdfast.job.failure import encode as encode_failure
from holdfast.job.outcome import Crash, Error, Release, Snoozed, Succeed, Unknown
from holdfast.store import commands
from tests.support.new_job import NewJob
from tests.support.shells import Hand, Shell, failure, wait_for_another_millisecond


def test_options_that_all_share_stand_before_or_after_the_command(shell: Shell, server_url: str) -> None:
    shell("--namespace", "elsewhere", "enqueue", "any.task", "--id", "mine")
    address = ("--url", server_url, "--namespace", "elsewhere")

    assert shell("jobs").out == ""
    for words in (("jobs", *address), (*address, "jobs")):
        assert [row[0] for row in shell(*words, HOLDFAST_URL="redis://localhost:1").rows] == ["mine"]
    assert shell("cancel", "mine", *address).code == 0
    assert shell("delete", "mine", *address).code == 0


def test_jobs_of_all_queues_come_in_the_order_of_time(shell: Shell) -> None:
    for number, queue in enumerate(("b", "a", "c", "a")):
        shell.put(f"job{number}", queue=queue)
        wait_for_another_millisecond(shell.client)
    shell.client.cancel("job0")

    assert [row[0] for row in shell("jobs", "--state", "waiting").rows] == ["job3", "job2", "job1"]
    assert [row[0] for row in shell("jobs", "--state", "waiting", "--oldest").rows] == ["job1", "job2", "job3"]
    assert [row[0] for row in shell("jobs", "--limit", "1").rows] == ["job0"]


def test_jobs_are_chosen_by_queue_and_state(shell: Shell) -> None:
    for id, queue in (("one", "a"), ("two", "a"), ("three", "b")):
        shell.put(id, queue=queue)
    shell.client.cancel("two")

    assert {row[0] for row in shell("jobs", "--queue", "a").rows} == {"one", "two"}
    assert {row[0] for row in shell("jobs", "--state", "pending").rows} == {"one", "three"}
    assert {row[0] for row in shell("jobs", "--state", "cancelled,failed", "--queue", "a").rows} == {"two"}
    assert {row[0] for row in shell("jobs", "--state", "cancelled", "--state", "waiting").rows} == {
        "one",
        "two",
        "three",
    }
    assert shell("jobs", "--queue", "none").out == ""
    code, _, err = shell("jobs", "--state", "done")
    assert (code, "unknown state 'done'" in err) == (2, True)


def test_json_of_jobs_is_an_array_of_objects(shell: Shell) -> None:
    assert shell("jobs", "--json").json == []
    shell.put("mine", task="any.task")

    (job,) = shell("jobs", "--json").json
    assert (job["id"], job["task"], job["state"], job["attempt"]) == ("mine", "any.task", "waiting", 0)


def test_a_running_job_shows_its_worker_and_progress(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()
    held = commands.Lease("node/worker.1", "mine", 1)
    shell.client.store.run(commands.save(held, b'{"page":7}', progress='{"progress":0.5,"message":"half"}'))

    (row,) = shell("jobs").rows
    assert row[3:5] + row[6:] == ["running", "1", "50% half", "node/worker"]
    assert "████░░░░ 50% half" in shell.on_a_terminal("jobs")
    assert shell("show", "mine", "--json").json["checkpoint"] == {"page": 7}


def test_show_gives_the_reason_of_every_attempt(shell: Shell) -> None:
    shell.put("mine", payload=b'{"n":12345678901234567890123}')
    hand = Hand(shell.client)
    hand.end(Error(failure(), "g", delay=0))
    hand.end(Crash(failure("killed")))
    hand.vanish()
    hand.end(Release("stopped"))
    wait_for_another_millisecond(shell.client)
    hand.end(Succeed(b'"done"'))
    shell.client.retry("mine")
    hand.end(Error(failure("no"), "g", final=True))

    job = shell("show", "mine", "--json").json
    reasons = [(attempt["number"], attempt["because"], attempt["outcome"]) for attempt in job["attempts"]]
    assert reasons == [
        (1, "first", "error"),
        (2, "error", "crash"),
        (3, "crash", "lost"),
        (4, "lost", "released"),
        (5, "released", "succeeded"),
        (6, "retry", "error"),
    ]
    assert (job["state"], job["group"], job["arguments"]) == ("failed", "g", {"n": 12345678901234567890123})
    assert (job["retries"], job["retries_used"]) == (3, 0)
    assert [note["what"] for note in job["notes"]] == ["retried"]


def test_json_of_an_attempt_has_all_that_is_known_of_it(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(), "g", delay=0))

    (attempt,) = shell("show", "mine", "--json").json["attempts"]
    assert (attempt["executor"], attempt["pid"], attempt["reason"]) == ("node/worker.1", 4711, "")
    assert attempt["failure"] == {
        "type": "ValueError",
        "message": "boom",
        "notes": [],
        "traceback": "ValueError: boom",
        "group": "g",
        "fingerprint": "f",
        "place": "",
        "traceback_of": None,
    }
    times = [datetime.fromisoformat(attempt[name]) for name in ("queued_at", "claimed_at", "ended_at")]
    assert times == sorted(times)


def test_show_for_people_has_every_attempt_with_its_traceback(shell: Shell) -> None:
    shell.put("mine", payload=b'{"n":1}')
    hand = Hand(shell.client)
    hand.end(Error(failure(), "g", delay=0))
    hand.end(Release("stopped"))
    shell.client.cancel("mine", reason="no use")

    text = shell("show", "mine").out
    facts = [line.split("\t")[0] for line in text.splitlines()]
    assert facts[:2] == ["id", "state"]
    story = [line.split()[1:] for line in text.partition("\nhistory\t\n")[2].splitlines() if "    " not in line[:30]]
    assert [words[0] for words in story] == [
        *("created", "claimed", "error", "claimed", "released", "cancelled"),
    ]
    for words in ('arguments\t{"n":1}', "ValueError: boom", "attempt 2, after", ": stopped", "no use, by "):
        assert words in text


@pytest.mark.parametrize("verb", ["show", "cancel", "retry", "delete"])
def test_an_unknown_id_is_not_found(shell: Shell, verb: str) -> None:
    code, out, err = shell(verb, "nobody")

    assert (code, out) == (3, "")
    assert err.startswith("holdfast: ")
    assert "nobody" in err


def test_cancel_retry_and_delete_print_an_answer_for_each_job(shell: Shell) -> None:
    shell.put("one")
    shell.put("two")

    assert shell("cancel", "one", "two", "--reason", "why not").rows == [["one", "cancelled"], ["two", "cancelled"]]
    assert [note.text for note in shell.client.get("one").notes] == ["why not"]
    assert shell("retry", "one", "--json").json == [{"id": "one", "state": "waiting"}]
    assert shell("delete", "two").rows == [["two", "deleted"]]
    assert shell("show", "two").code == 3


def test_a_refusal_for_one_job_does_not_stop_the_others(shell: Shell) -> None:
    shell.put("one")
    shell.put("two")
    shell.client.cancel("one")

    code, out, err = shell("cancel", "one", "two", "nobody")
    assert (code, out) == (1, "two\tcancelled\n")
    assert err.count("holdfast: ") == 2
    assert shell("retry", "nobody", "two").code == 3
    assert shell("delete", "two").code == 1


def test_a_running_job_is_cancelling(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()

    assert shell("cancel", "mine").rows == [["mine", "cancelling"]]
    assert shell("jobs").rows[0][3] == "cancelling"


# Looking closer


def test_a_pipe_gets_all_jobs_and_a_terminal_the_first_fifty(shell: Shell) -> None:
    jobs = [NewJob(id=f"j{number}", payload=b"{}", queue=f"q{number % 3}", task="t") for number in range(130)]
    shell.client.store.run(commands.enqueue(jobs))

    assert len(shell("jobs").rows) == 130
    assert len(shell("jobs", "--json").json) == 130
    assert len(shell("jobs", "--limit", "7").rows) == 7
    shown = shell.on_a_terminal("jobs")
    assert len(re.findall(r"^j\d+ ", shown, re.M)) == 50
    assert "50 of 130 jobs; --limit shows more" in shown
    assert "jobs; --limit" not in shell.on_a_terminal("jobs", "--limit", "7")


def test_jobs_are_counted(shell: Shell) -> None:
    for id, queue in (("one", "a"), ("two", "a"), ("three", "b")):
        shell.put(id, queue=queue)
    shell.client.cancel("two")

    assert shell("count").out == "3\n"
    assert shell("count", "--state", "pending").out == "2\n"
    assert shell("count", "--queue", "a", "--state", "cancelled,failed", "--json").json == {"count": 1}


def test_a_list_shows_the_group_of_a_failed_job(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(), "bad-address", final=True))
    assert shell("jobs").rows[0][6] == "bad-address"


def test_show_explains_a_failure_below_the_state(shell: Shell) -> None:
    shell.put("mine")
    stalled = Failure(
        type="Stalled", message="it said nothing", traceback="in hang\n", group="stalled", fingerprint="s"
    )
    Hand(shell.client).end(Error(encode_failure(stalled), "stalled", final=True))

    lines = shell("show", "mine").out.splitlines()

    assert lines[1:3] == ["state\tfailed", "failed\tStalled: it said nothing"]
    assert [line.partition("\t")[2] for line in lines[-3:]] == [
        next(line for line in lines if "error " in line).partition("\t")[2],
        "    in hang",
        "failed       group stalled, declared",
    ]
    assert lines[-3].endswith(": Stalled: it said nothing")
    assert shell("show", "mine", "--json").json["why"] == "Stalled: it said nothing"


def test_show_explains_why_an_at_most_once_job_cannot_continue(shell: Shell) -> None:
    job = NewJob(id="mine", payload=b"{}", queue="default", task="tasks.add", at_most_once=True)
    shell.client.store.run(commands.enqueue([job]))
    Hand(shell.client).end(Snoozed(1000))

    words = "it runs at most once, and its attempt was snoozed, so it cannot continue; `retry` starts it again"
    assert f"failed\t{words}" in shell("show", "mine").out
    with pytest.raises(JobFailed, match=words):
        shell.client.get("mine").result()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("holdfast.program", "does not run programs"),
        ("tasks.other", "does not know task tasks.other"),
    ],
)
def test_show_explains_that_a_job_was_released_by_a_worker_that_cannot_run_it(
    shell: Shell, task: str, words: str
) -> None:
    shell.put("mine", task=task)
    Hand(shell.client).end(Unknown())
    assert f"scheduled\tits last worker {words}" in shell("show", "mine").out


def test_peek_shows_what_runs_next_and_takes_nothing(shell: Shell) -> None:
    shell.client.store.run(
        commands.enqueue(
            [
                NewJob(id="later", payload=b"{}", queue="default", task="t"),
                NewJob(id="sooner", payload=b'{"n":1}', queue="default", task="t", priority=-5),
            ]
        )
    )

    (next_one,) = shell("peek", "default", "--json").json
    assert (next_one["id"], next_one["arguments"], next_one["state"]) == ("sooner", {"n": 1}, "waiting")
    assert [row[1] for row in shell("peek", "default", "--limit", "9").rows if row[0] == "id"] == ["sooner", "later"]
    shell.client.cancel("later")
    shell.client.cancel("sooner")
    code, out, err = shell("peek", "default")
    assert (code, out, err) == (0, "", "holdfast: queue default has no waiting job\n")


def test_peek_skips_jobs_whose_records_are_gone_and_names_them(shell: Shell, server_url: str) -> None:
    for name in ("gone", "damaged", "next"):
        shell.put(name)
    record = f"hf:{{{shell.client.address.namespace}}}:j:"
    with redis.Redis.from_url(server_url) as server:
        server.delete(f"{record}gone")
        server.hset(f"{record}damaged", "h", "?")

    code, out, err = shell("peek", "default", "--json")
    assert (code, [job["id"] for job in json.loads(out)]) == (0, ["next"])
    assert json.loads(err) == {"note": "skipped jobs whose records are missing or cannot be read: gone, damaged"}

    shell.client.cancel("next")
    code, out, err = shell("peek", "default")
    assert (code, out) == (0, "")
    assert err == "holdfast: skipped jobs whose records are missing or cannot be read: gone, damaged\n"


def test_fields_and_notes_are_kept_with_a_job_and_shown(shell: Shell) -> None:
    shell.put("mine")

    assert shell("attach", "mine", "ticket=4711", "owner=").rows == [["owner", ""], ["ticket", "4711"]]
    assert shell("attach", "mine", "--remove", "owner", "--json").json == {"id": "mine", "fields": {"ticket": "4711"}}
    assert shell("note", "mine", "sent", "again").rows == [["mine", "sent again"]]
    text = shell("show", "mine").out
    assert "field ticket\t4711" in text
    assert "noted        sent again, by " in text
    assert shell("attach", "mine", "ticket").code == 2
    assert shell("note", "mine").code == 2
    assert "did you mean mine?" in shell("note", "min", "words").err


def test_a_checkpoint_is_cut_on_a_terminal_and_whole_in_a_pipe(shell: Shell) -> None:
    rows = [f"row {number}" for number in range(100)]
    shell.put("mine", payload=json.dumps({"rows": rows}).encode())

    shown = shell.on_a_terminal("show", "mine")
    assert "row 5" in shown
    assert "row 99" not in shown
    assert "cut; --json prints all of it" in shown
    assert "row 99" in shell("show", "mine").out
    assert shell("show", "mine", "--json").json["arguments"] == {"rows": rows}


@pytest.mark.parametrize(("word", "meant"), [("faild", "failed"), ("run", "running"), ("pendign", "pending")])
def test_a_mistyped_state_leads_to_the_one_that_is_meant(shell: Shell, word: str, meant: str) -> None:
    code, _, err = shell("jobs", "--state", word)

    assert (code, err) == (2, f"holdfast: unknown state '{word}'; did you mean {meant}?\n")


def test_a_job_that_cannot_be_read_is_shown_with_the_reason(shell: Shell, server_url: str, namespace: str) -> None:
    for id in ("newer", "gone"):
        shell("enqueue", "any.task", "--id", id)
    with redis.Redis.from_url(server_url) as client:
        record = f"hf:{{{namespace}}}:j:newer"
        head = client.hget(record, "h")
        client.hset(record, "h", b"\x02" + head[1:])
        client.delete(f"hf:{{{namespace}}}:j:gone")

    shown = shell("show", "newer")
    assert shown.code == 0
    assert "a newer release wrote its record: upgrade this one" in shown.out
    assert json.loads(shell("show", "newer", "--json").out)["state"] == "unreadable"
    assert "did you mean" not in shell("cancel", "gone").err
