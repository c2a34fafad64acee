"""The program `holdfast`, run as users run it: as a process of its own, on a real server, piped and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast, commands
from holdfast.cli.app import program
from holdfast.cli.session import Command, Group
from holdfast.commands import Finish, NewJob
from holdfast.failure import Failure
from holdfast.failure import encode as encode_failure
from holdfast.outcome import Crash, Error, Outcome, Release, Succeed

PROGRAM = (sys.executable, "-m", "holdfast.cli")
PATIENCE = 30  # seconds for a condition to come true
ESCAPE = "\x1b["
EVIL = "\x1b[31mred\x07\x9b2J\u202e[bold]b[/bold]"

APP = """
from datetime import date
from holdfast import Holdfast, current_job

jobs = Holdfast()

@jobs.task
def add(x: int, y: int = 10) -> int:
    return x + y

@jobs.task(queue="post")
def greet(name: str, on: date | None = None) -> str:
    return f"hello {name} {on}"

@jobs.task(retries=0)
def fail(word: str) -> None:
    raise ValueError(word)
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


class Shell:
    """A directory with an app in it, an environment, and a namespace of its own."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        self.folder = folder
        self.client = Holdfast(url, namespace=namespace)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.environ = {**ours, "HOLDFAST_URL": url, "HOLDFAST_NAMESPACE": namespace, "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
            self.environ.pop(name, None)
        (folder / "tasks.py").write_text(APP)

    def __call__(self, *words: str, **environ: str) -> Ended:
        done = subprocess.run(
            [*PROGRAM, *words],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def on_a_terminal(self, *words: str, columns: int = 120, **environ: str) -> str:
        """Run a command on a terminal, and return what it shows."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        process = subprocess.Popen(
            [*PROGRAM, *words], cwd=self.folder, env={**self.environ, **environ}, stdin=its, stdout=its, stderr=its
        )
        os.close(its)
        shown = b""
        with suppress(OSError):  # at the end
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        process.wait()
        return shown.decode().replace("\r\n", "\n")

    def put(self, id: str, *, task: str = "tasks.add", queue: str = "default", payload: bytes = b"{}") -> None:
        job = NewJob(id=id, payload=payload, queue=queue, task=task)
        self.client.store.run(commands.enqueue([job]))


@pytest.fixture
def shell(tmp_path: Path, server_url: str, namespace: str) -> Iterator[Shell]:
    made = Shell(tmp_path, server_url, namespace)
    yield made
    made.client.close()


class Hand:
    """An executor that does what the test says."""

    def __init__(self, client: Holdfast, worker: str = "node/worker") -> None:
        self._client = client
        self._worker = worker
        self._count = 0

    def take(self) -> str:
        self._count += 1
        request = commands.claim_args(["default"], counter=self._count, limit=1)
        (job,) = self._client.store.run(commands.claim(f"{self._worker}.1", request)).jobs
        return job.id

    def end(self, outcome: Outcome) -> None:
        id = self.take()
        attempt = self._client.get(id).attempt
        finish = commands.finish(f"{self._worker}.1", [Finish(id, attempt, outcome, pid=4711)])
        assert self._client.store.run(finish).answers == ["OK"]

    def vanish(self) -> None:
        self.take()
        assert self._client.store.run(commands.lose(worker=self._worker, reason="the worker died"))


def failure(message: str = "boom") -> bytes:
    described = Failure(
        type="ValueError", message=message, traceback=f"ValueError: {message}", group="g", fingerprint="f"
    )
    return encode_failure(described)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "this has not come true"
        time.sleep(0.02)  # between looks at a condition


def wait_for_another_millisecond(client: Holdfast) -> None:
    """Jobs that change in one millisecond have no order."""

    def now() -> int:
        seconds, microseconds = client.store.execute("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    start = now()
    wait_until(lambda: now() > start)


# Help


def every_command() -> list[tuple[str, Command | Group]]:
    found: list[tuple[str, Command | Group]] = []
    for name, each in program.commands.items():
        assert isinstance(each, Command | Group)
        found.append((name, each))
        for inner, command in each.commands.items() if isinstance(each, Group) else ():
            assert isinstance(command, Command)
            found.append((f"{name} {inner}", command))
    return found


@pytest.mark.parametrize("name", [name for name, _ in every_command()])
def test_help_of_each_command_ends_with_examples(shell: Shell, name: str) -> None:
    code, out, err = shell(*name.split(), "--help")

    assert (code, err) == (0, "")
    examples = out.partition("\nExamples:\n")[2].splitlines()
    assert 1 <= len(examples) <= 3
    assert all(f"holdfast {name.split(maxsplit=1)[0]}" in example for example in examples)


def test_examples_are_command_lines_that_are_accepted() -> None:
    for _, command in every_command():
        for example in command.examples:
            for words in re.findall(r"holdfast ([^|)]+)", re.sub(r"xargs (.*)", r"\1 id", example)):
                first, *rest = shlex.split(words)
                if first in program.commands and first != "server":
                    program.commands[first].make_context(first, rest, resilient_parsing=False)


def test_the_program_alone_says_what_it_can_do(shell: Shell) -> None:
    code, out, _ = shell()

    assert code == 0
    assert all(name in out for name in program.commands)
    assert "Exit codes:" in out
    assert "Examples:" in out


def test_the_script_of_the_package_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("holdfast")

    assert subprocess.check_output([script, "--version"]) == subprocess.check_output([*PROGRAM, "--version"])


def test_an_unknown_command_is_a_usage_error_with_a_hint(shell: Shell) -> None:
    code, out, err = shell("job")

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: No such command 'job'")


# Enqueue


def test_enqueue_prints_the_id_of_a_job_with_arguments_read_as_json_or_text(shell: Shell) -> None:
    words = ("x=1", "name=in.mov", 'deep={"a": [1, null]}', 'text="42"', "empty=", "url=http://x/?a=b")
    code, out, err = shell("enqueue", "any.task", *words)

    assert (code, err) == (0, "")
    job = shell.client.get(out.strip())
    assert (job.task, job.queue, job.state) == ("any.task", "default", "waiting")
    given = {"x": 1, "name": "in.mov", "deep": {"a": [1, None]}, "text": "42", "empty": "", "url": "http://x/?a=b"}
    assert json.loads(job.payload or b"") == given


def test_options_of_enqueue_reach_the_job(shell: Shell) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    options = ("--queue", "mail", "--priority", "-5", "--retries", "7", "--at", tomorrow.isoformat())
    assert shell("enqueue", "any.task", "--id", "mine", *options).out == "mine\n"

    job = shell.client.get("mine")
    assert (job.queue, job.priority, job.retries, job.state) == ("mail", -5, 7, "scheduled")
    assert job.due_at == tomorrow


def test_a_delay_is_a_duration_or_seconds(shell: Shell) -> None:
    for delay in ("1h30m", "90"):
        id = shell("enqueue", "any.task", "--delay", delay).out.strip()
        assert shell.client.get(id).state == "scheduled"


def test_a_second_job_of_an_id_is_not_stored_and_that_is_said(shell: Shell) -> None:
    shell("enqueue", "any.task", "n=1", "--id", "mine")
    code, out, err = shell("enqueue", "any.task", "n=2", "--id", "mine", "--json")

    assert (code, json.loads(out)) == (0, {"id": "mine", "created": False})
    assert "is there already" in err
    assert shell.client.get("mine").payload == b'{"n":1}'


def test_with_the_app_the_signature_names_and_types_the_arguments(shell: Shell) -> None:
    id = shell("enqueue", "greet", "42", "on=2024-02-29", "--app", "tasks").out.strip()

    job = shell.client.get(id)
    assert (job.task, job.queue) == ("tasks.greet", "post")
    assert job.payload == b'{"name":"42","on":"2024-02-29"}'


def test_the_app_can_be_named_by_the_environment(shell: Shell) -> None:
    assert shell("enqueue", "add", "1", HOLDFAST_APP="tasks:jobs").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("any.task", "1"), "has no name"),
        (("any.task", "x=1", "x=2"), "given twice"),
        (("any task",), "task is 'any task'"),
        (("any.task", "--priority", "999"), "priority is 999"),
        (("any.task", "--delay", "soon"), "--delay is 'soon'"),
        (("any.task", "--at", "noon"), "is no time like"),
        (("any.task", "--at", "2030-01-01", "--delay", "1s"), "delay and at are both given"),
        (("any.task", "--timeout", "1s"), "--wait"),
        (("add", "one", "--app", "tasks"), "argument 'x' is 'one'; it must be what int takes"),
        (("add", "--app", "tasks"), "missing a required argument: 'x'"),
        (("add", "1", "2", "3", "--app", "tasks"), "too many positional arguments"),
        (("add", "1", "z=3", "--app", "tasks"), "unexpected keyword argument 'z'"),
        (("sub", "--app", "tasks"), "the app has no task sub; it has tasks.add"),
        (("add", "--app", "tasks.py"), "APP is a module: tasks"),
        (("add", "--app", "nowhere"), "there is no module 'nowhere'"),
        (("add", "--app", "tasks:nobody"), "no Holdfast app named nobody"),
        (("add", "--app", "broken"), "ZeroDivisionError: division by zero"),
        (("any.task", "--plain", "--json"), "choose one"),
    ],
)
def test_what_cannot_be_enqueued_is_a_usage_error_in_words(shell: Shell, words: tuple[str, ...], says: str) -> None:
    (shell.folder / "broken.py").write_text("x = 1 / 0\n")
    code, out, err = shell("enqueue", *words)

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: ")
    assert says in err
    assert "importlib" not in err
    assert shell.client.count() == (1 if "choose one" in says else 0)


# Looking


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
    assert (code, "there is no state 'done'" in err) == (2, True)


def test_json_of_jobs_is_an_array_of_objects(shell: Shell) -> None:
    assert shell("jobs", "--json").json == []
    shell.put("mine", task="any.task")

    (job,) = shell("jobs", "--json").json
    assert (job["id"], job["task"], job["state"], job["attempt"]) == ("mine", "any.task", "waiting", 0)


def test_a_running_job_shows_its_worker_and_progress(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()
    held = commands.Held("node/worker.1", "mine", 1)
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
    assert job["budget"]["retries"] == {"used": 0, "most": 3, "left": 3}
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
    }
    times = [attempt[name] for name in ("queued_at", "claimed_at", "ended_at")]
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
    assert [fact for fact in facts if fact.startswith("attempt")] == ["attempt 1", "attempt 2"]
    for words in ('arguments\t{"n":1}', "ValueError: boom", "made because of: error", "stopped", "no use"):
        assert words in text


@pytest.mark.parametrize("verb", ["show", "cancel", "retry", "delete"])
def test_an_unknown_id_is_not_found(shell: Shell, verb: str) -> None:
    code, out, err = shell(verb, "nobody")

    assert (code, out) == (3, "")
    assert err.startswith("holdfast: ")
    assert "nobody" in err


def test_queues_are_listed_with_their_numbers(shell: Shell) -> None:
    shell.put("one", queue="a")
    shell.put("two", queue="b")
    shell.client.cancel("two")
    assert shell("pause", "b").out.split() == ["b", "paused"]

    assert shell("queues").rows == [
        ["a", "active", "0", "1", "0", "0", "0", "0", "0", "0"],
        ["b", "paused", "0", "0", "0", "0", "0", "0", "0", "1"],
    ]
    counts = {row["queue"]: (row["paused"], row["waiting"], row["cancelled"]) for row in shell("queues", "--json").json}
    assert counts == {"a": (False, 1, 0), "b": (True, 0, 1)}


def test_pause_and_resume_say_whether_they_changed_anything(shell: Shell) -> None:
    changed = [shell(*words, "q", "--json").json["changed"] for words in (["pause"], ["pause"], ["resume"], ["resume"])]

    assert changed == [True, False, True, False]
    assert "it was so before" in shell("resume", "q").out


def test_workers_are_listed_with_the_jobs_they_hold(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()
    about = '{"pid":7,"queues":["a","b"],"app":"tasks","lease":30000}'
    shell.client.store.run(commands.renew("node/worker", [commands.Held("node/worker.1", "mine", 1)], about=about))

    (row,) = shell("workers").rows
    assert [row[0], *row[2:]] == ["node/worker", "7", "tasks", "a b", "mine"]
    (worker,) = shell("workers", "--json").json
    assert worker["jobs"] == [{"id": "mine", "attempt": 1, "executor": "node/worker.1"}]


def test_events_are_lines(shell: Shell) -> None:
    shell.put("mine")
    shell.client.cancel("mine")

    assert [(row[1], row[3]) for row in shell("events").rows] == [("enqueued", "mine"), ("cancelled", "mine")]
    last = json.loads(shell("events", "--limit", "1", "--json").out)
    assert (last["type"], last["jobs"]) == ("cancelled", ["mine"])


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
    assert (follow.returncode, out, err.strip()) == (130, b"", b"")


# Steering


def test_cancel_retry_and_delete_say_what_became_of_each_job(shell: Shell) -> None:
    shell.put("one")
    shell.put("two")

    assert shell("cancel", "one", "two", "--reason", "why not").rows == [["one", "cancelled"], ["two", "cancelled"]]
    assert [note.words for note in shell.client.get("one").notes] == ["why not"]
    assert shell("retry", "one", "--json").json == [{"id": "one", "answer": "waiting"}]
    assert shell("delete", "two").rows == [["two", "deleted"]]
    assert shell("show", "two").code == 3


def test_what_is_refused_for_one_job_is_done_for_the_others(shell: Shell) -> None:
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


# The store, and pipes


def test_a_server_that_cannot_be_reached_has_its_exit_code(shell: Shell) -> None:
    code, out, err = shell("jobs", "--url", "redis://:secret@localhost:1")

    assert (code, out) == (4, "")
    assert err.startswith("holdfast: redis://localhost:1 cannot be reached")


def test_a_url_that_is_none_is_a_usage_error(shell: Shell) -> None:
    assert shell("jobs", "--url", "http://localhost").code == 2


def test_words_that_are_not_text_are_refused(shell: Shell) -> None:
    code, _, err = shell("show", os.fsdecode(b"\xff"))

    assert (code, err.count("\n")) == (2, 1)


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    for number in range(100):
        shell.put(f"{number}-{'x' * 120}")
    listing = subprocess.Popen(
        [*PROGRAM, "jobs", "--limit", "100", "--json"],
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert listing.stdout
    listing.stdout.close()

    listing.wait()
    assert listing.stderr
    assert listing.stderr.read() == b""
    listing.stderr.close()
    assert listing.returncode == 141


# Terminals


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


def test_an_empty_list_says_so_on_a_terminal(shell: Shell) -> None:
    for name in ("jobs", "queues", "workers"):
        assert f"no {name}" in shell.on_a_terminal(name)


def test_every_view_works_on_a_terminal(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(), "g", delay=0))

    assert "attempt 1" in shell.on_a_terminal("show", "mine")
    assert "WAITING" in shell.on_a_terminal("queues")
    assert "enqueued" in shell.on_a_terminal("events")
    assert "paused" in shell.on_a_terminal("pause", "default")


@pytest.mark.parametrize("words", [("show", "mine"), ("jobs",), ("workers",), ("show", "mine", "--json")])
def test_control_characters_of_job_data_never_reach_the_terminal(shell: Shell, words: tuple[str, ...]) -> None:
    shell.put("mine", payload=json.dumps({EVIL: EVIL}).encode())
    hand = Hand(shell.client)
    hand.end(Error(failure(EVIL), "g", delay=0))
    hand.take()
    held = commands.Held("node/worker.1", "mine", 2)
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


def test_an_error_of_a_job_is_escaped_where_it_is_told(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(EVIL), "g", final=True))
    code, _, err = shell("enqueue", "any.task", "--id", "mine", "--wait")

    assert code == 1
    assert r"\x1b[31mred" in err
    assert "\x1b" not in err


# The embedded server


def test_the_embedded_server_is_started_described_and_stopped(shell: Shell) -> None:
    del shell.environ["HOLDFAST_URL"]
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")
    assert shell("server", "status").code == 3
    assert shell("server", "stop").code == 3
    try:
        assert shell("server", "start").out.startswith("unix://")
        code, out, _ = shell("server", "status", "--json")
        assert (code, json.loads(out)["running"]) == (0, True)
        assert "running\tyes" in shell("server", "status").out
        assert shell("enqueue", "any.task", "--id", "mine").code == 0
        assert [row[0] for row in shell("jobs").rows] == ["mine"]
    finally:
        stopped = shell("server", "stop")
    assert (stopped.code, stopped.out) == (0, "stopped\n")
    assert shell("server", "status", "--json").json["running"] is False


def test_the_server_commands_say_when_a_url_leads_elsewhere(shell: Shell) -> None:
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")

    assert "a URL is given" in shell("server", "status").err


# Working


@contextmanager
def running_worker(shell: Shell, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with (shell.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*PROGRAM, "work", "tasks", *words], cwd=shell.folder, env=shell.environ, stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE)


def test_a_worker_runs_what_is_enqueued_until_it_is_told_to_stop(shell: Shell) -> None:
    with running_worker(shell, "--queues", "post,default", "--processes", "2", "--node", "here") as worker:
        done = shell("enqueue", "add", "1", "--app", "tasks", "--wait", "--timeout", "60s")
        assert (done.code, done.out) == (0, "11\n")
        by_name = shell("enqueue", "tasks.greet", "name=ann", "--queue", "post", "--wait", "--timeout", "60s", "--json")
        assert (by_name.code, by_name.json["result"]) == (0, "hello ann None")
        failed = shell("enqueue", "fail", "no good", "--app", "tasks", "--wait", "--timeout", "60s")
        assert (failed.code, failed.out) == (1, "")
        assert "ValueError: no good" in failed.err
        assert [row[0].split("/")[0] for row in shell("workers").rows] == ["here"]

    assert worker.returncode == 0
    assert "starts, queues post, default" in (shell.folder / "worker.log").read_text()
    assert shell("workers").out == ""


def test_address_and_flags_of_a_worker_come_from_options_and_environment(shell: Shell, server_url: str) -> None:
    address = ("--url", server_url, "--namespace", shell.environ["HOLDFAST_NAMESPACE"])
    shell.environ.update(HOLDFAST_URL="redis://localhost:1", HOLDFAST_NAMESPACE="elsewhere", HOLDFAST_QUEUES="special")
    shell.put("mine", queue="special", payload=b'{"x":1}')

    with running_worker(shell, *address):
        wait_until(lambda: shell.client.get("mine").state == "succeeded")


def test_waiting_ends_when_the_time_is_over(shell: Shell) -> None:
    code, out, err = shell("enqueue", "any.task", "--wait", "--timeout", "10ms")

    assert (code, out) == (5, "")
    assert "has not ended" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere",), "there is no module 'nowhere'"),
        (("tasks.py",), "APP is a module: tasks"),
        (("tasks", "--lease", "1ms"), "--lease is '1ms'"),
        (("tasks", "--queues", "a, b!"), "queue is 'b!'"),
        (("tasks", "--processes", "0"), "--processes"),
        (("tasks", "--node", "a/b"), "--node is 'a/b'"),
        ((), "APP"),
    ],
)
def test_a_worker_that_cannot_be_is_a_usage_error(shell: Shell, words: tuple[str, ...], says: str) -> None:
    code, out, err = shell("work", *words)

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: ")
    assert says in err


def test_a_worker_whose_app_cannot_be_imported_says_why(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("x = 1 / 0\n")
    code, _, err = shell("work", "broken")

    assert code == 1
    assert "ZeroDivisionError" in err
