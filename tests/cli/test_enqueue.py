"""Storing jobs from the command line, one or many, and the worker that runs them."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Retries
from holdfast.cli.job_options import RETRY_PARTS
from holdfast.job.options import RunOptions
from holdfast.store import commands
from tests.support.shells import Shell, running_worker, wait_until


def test_enqueue_prints_the_id_of_a_job_with_arguments_read_as_json_or_text(shell: Shell) -> None:
    words = ("x=1", "name=in.mov", 'deep={"a": [1, null]}', 'text="42"', "empty=", "url=http://x/?a=b")
    code, out, err = shell("enqueue", "any.task", *words)

    assert (code, err) == (0, "holdfast: the job waits: no worker is running; start one: `holdfast work APP`\n")
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


def test_a_retry_policy_is_given_by_options(shell: Shell) -> None:
    parts = ("--retry-waits", "1s,90,1h", "--retry-cap", "5m", "--retry-jitter", "0.5")
    names = ("--retry-on", "OSError", "--retry-on", "requests.exceptions.Timeout", "--retry-not-on", "PermissionError")
    shell("enqueue", "any.task", "--id", "mine", "--retries", "7", *parts, *names)
    shell("enqueue", "any.task", "--id", "default", "--retry-cap", "1m")

    policy = Retries(
        7,
        waits=["1s", "90s", "1h"],
        cap="5m",
        jitter=0.5,
        on=[OSError, "requests.exceptions.Timeout"],
        not_on=PermissionError,
    )
    assert shell.client.get("mine").retry_policy == policy
    assert shell.client.get("default").retry_policy == Retries(3, cap="1m")
    words = "waits 1s, 1m30s, 1h, cap 5m, jitter 0.5, on OSError, requests.exceptions.Timeout, not_on PermissionError"
    assert f"retry policy\t{words}\n" in shell("show", "mine").out
    assert json.loads(shell("show", "mine", "--json").out)["retry_policy"] == {
        "waits_seconds": [1, 90, 3600],
        "cap_seconds": 300,
        "jitter": 0.5,
        "on": ["OSError", "requests.exceptions.Timeout"],
        "not_on": ["PermissionError"],
    }
    assert json.loads(shell("show", "default", "--json").out)["retry_policy"]["waits_seconds"] == []
    shell("schedules", "add", "daily", "any.task", "--every", "1d", "--retries", "2", "--retry-waits", "1m")
    shown = shell("schedules", "show", "daily", "--json").json
    assert shown["options"] == {"retries": 2, "retry_policy": {"waits": [60_000]}}
    fired = shell.client.get(shell.client.trigger("daily"))
    assert fired.retry_policy == Retries(2, waits="1m")


def test_the_options_of_a_retry_policy_have_the_names_of_its_parts() -> None:
    assert [*RETRY_PARTS] == [*inspect.signature(Retries).parameters][1:]


def test_a_delay_is_a_duration_or_seconds(shell: Shell) -> None:
    for delay in ("1h30m", "90"):
        id = shell("enqueue", "any.task", "--delay", delay).out.strip()
        assert shell.client.get(id).state == "scheduled"


def test_a_second_job_with_an_id_is_not_stored_and_a_note_is_printed(shell: Shell) -> None:
    shell("enqueue", "any.task", "n=1", "--id", "mine")
    code, out, err = shell("enqueue", "any.task", "n=2", "--id", "mine", "--json")

    assert (code, json.loads(out)) == (0, {"id": "mine", "created": False})
    assert "already exists; nothing was stored" in err
    assert shell.client.get("mine").payload == b'{"n":1}'


def test_with_the_app_the_signature_names_and_types_the_arguments(shell: Shell) -> None:
    id = shell("enqueue", "greet", "42", "on=2024-02-29", "--app", "tasks").out.strip()

    job = shell.client.get(id)
    assert (job.task, job.queue) == ("tasks.greet", "post")
    assert job.payload == b'{"name":"42","on":"2024-02-29"}'


def test_a_unique_key_is_stored_once_and_its_owner_is_printed(shell: Shell) -> None:
    first = shell("enqueue", "any.task", "--unique", "daily", "--unique-for", "1h").out
    second = shell("enqueue", "any.task", "--unique", "daily", "--unique-for", "3600")

    assert (second.code, second.out) == (0, first)
    assert "already exists; nothing was stored" in second.err
    assert shell("enqueue", "any.task", "--unique", "daily", "--on-exists", "error").code == 1


def test_a_debounced_call_replaces_the_one_before(shell: Shell) -> None:
    first = shell("enqueue", "any.task", "n=1", "--debounce", "1h").out.strip()
    second = shell("enqueue", "any.task", "n=2", "--debounce", "1h").out.strip()

    assert shell.client.count() == 1
    assert shell.client.get(second).payload == b'{"n":2}'
    assert first


def test_a_job_may_be_run_once_at_most_or_not_be_kept(shell: Shell) -> None:
    shell("enqueue", "any.task", "--id", "once", "--at-most-once")
    shell("enqueue", "any.task", "--id", "unkept", "--keep", "no")

    assert (shell.client.get("once").at_most_once, shell.client.get("unkept").keep) == (True, False)
    assert "runs\tat most once" in shell("show", "once").out
    assert "runs\tnot retained after its end" in shell("show", "unkept").out


def test_an_unknown_task_of_an_app_leads_to_the_one_that_is_meant(shell: Shell) -> None:
    code, _, err = shell("enqueue", "gret", "name=ann", "--app", "tasks")

    assert (code, err) == (2, "holdfast: unknown task gret; did you mean tasks.greet?\n")


def test_the_app_can_be_named_by_the_environment(shell: Shell) -> None:
    assert shell("enqueue", "add", "1", HOLDFAST_APP="tasks:jobs").code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("any.task", "1"), "expected name=value, got '1'"),
        (("any.task", "x=1", "x=2"), "given twice"),
        (("any task",), "task is 'any task'"),
        (("any.task", "--priority", "999"), "priority is 999"),
        (("any.task", "--delay", "soon"), "--delay is 'soon'"),
        (("any.task", "--retries", "1001"), "retries is 1001"),
        (("any.task", "--retry-waits", "soon"), "--retry-waits is 'soon'"),
        (("any.task", "--retry-waits", "1s,,2s"), "--retry-waits is ''"),
        (("any.task", "--retry-cap", "0"), "--retry-cap is"),
        (("any.task", "--retry-jitter", "2"), "jitter of Retries is 2.0; it must be a number from 0 to 1"),
        (("any.task", "--retry-on", "Timeout"), "on of Retries has 'Timeout', which is not an exception"),
        (("any.task", "--retry-waits", "1s", "--backoff", "1s"), "backoff and the waits of retries are both given"),
        (("any.task", "--at", "noon"), "expected a time such as"),
        (("any.task", "--at", "2030-01-01", "--delay", "1s"), "delay and at are both given"),
        (("any.task", "--timeout", "1s"), "--wait"),
        (("add", "one", "--app", "tasks"), "argument 'x': expected int, got 'one'"),
        (("add", "--app", "tasks"), "missing a required argument: 'x'"),
        (("add", "1", "2", "3", "--app", "tasks"), "too many positional arguments"),
        (("add", "1", "z=3", "--app", "tasks"), "unexpected keyword argument 'z'"),
        (("sub", "--app", "tasks"), "unknown task sub; the app has tasks.add"),
        (("add", "--app", "tasks.py"), "expected APP as `module` or `module:name`, got a file; try tasks"),
        (("add", "--app", "nowhere"), "module 'nowhere' is neither in"),
        (("add", "--app", "tasks:nobody"), "no Holdfast app named nobody"),
        (("add", "--app", "tasks.jobs"), "tasks.jobs is not a module; try tasks:jobs"),
        (("add", "--app", "broken"), "ZeroDivisionError: division by zero"),
    ],
)
def test_an_invalid_enqueue_is_a_usage_error(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    (shell.folder / "broken.py").write_text("x = 1 / 0\n")
    code, out, err = shell("enqueue", *words)

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: ")
    assert expected in err
    assert "importlib" not in err
    assert shell.client.count() == 0


def test_a_worker_runs_enqueued_jobs_until_it_is_stopped(shell: Shell) -> None:
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
    assert "    queues  post, default\n" in (shell.folder / "worker.log").read_text()
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
    ("words", "expected"),
    [
        (("nowhere",), "module 'nowhere' is neither in"),
        (("tasks.py",), "expected APP as `module` or `module:name`, got a file; try tasks"),
        (("tasks", "--lease", "1ms"), "--lease is '1ms'"),
        (("tasks", "--queues", "a, b!"), "queue is 'b!'"),
        (("tasks", "--processes", "0"), "--processes"),
        (("tasks", "--node", "a/b"), "--node is 'a/b'"),
        ((), "APP"),
    ],
)
def test_a_worker_that_cannot_be_is_a_usage_error(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    code, out, err = shell("work", *words)

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: ")
    assert expected in err


def test_a_worker_whose_app_cannot_be_imported_prints_the_reason(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("x = 1 / 0\n")
    code, _, err = shell("work", "broken")

    assert code == 1
    assert "ZeroDivisionError" in err


LIMITS = ("--run-timeout", "6h", "--soft-timeout", "5h", "--stalled", "10m", "--memory", "2G", "--exclusive")


@pytest.mark.parametrize(
    "lines",
    [
        [("enqueue", "tasks.add", *LIMITS)],
        [("enqueue", "tasks.add", "1", "--app", "tasks", *LIMITS)],
        [("enqueue", *LIMITS, "--exec", "--", "true")],
        [("schedules", "add", "often", "tasks.add", "--every", "1h", *LIMITS), ("schedules", "trigger", "often")],
    ],
    ids=["a name", "a task", "a program", "a schedule"],
)
def test_limits_of_a_run_reach_the_worker(shell: Shell, lines: list[tuple[str, ...]]) -> None:
    for line in lines:
        assert shell(*line).code == 0, line

    request = commands.claim_args(["default"], counter=1, limit=1)
    (job,) = shell.client.store.run(commands.claim("node/worker.1", request)).jobs
    assert job.timeout == 6 * 3_600_000
    assert RunOptions.decode(job.run) == RunOptions(
        soft_timeout=5 * 3_600_000, stalled=600_000, memory=2 << 30, exclusive=True
    )


def test_fields_and_a_time_to_live_are_stored_and_shown(shell: Shell) -> None:
    words = ("--field", "ticket=17", "--field", "note=a=b", "--keep", "90m")
    shell("enqueue", "any.task", "--id", "mine", *words)
    assert shell.client.get("mine").fields == {"ticket": "17", "note": "a=b"}
    shown = shell("show", "mine").out
    assert "kept\tfor 1h30m after its end" in shown
    assert "field ticket\t17" in shown
    record = json.loads(shell("show", "mine", "--json").out)
    assert (record["keep"], record["keep_seconds"], record["expires_at"]) == (True, 5400, None)

    shell("cancel", "mine")
    record = json.loads(shell("show", "mine", "--json").out)
    since = datetime.fromisoformat(record["since"])
    assert datetime.fromisoformat(record["expires_at"]) == since + timedelta(minutes=90)
    assert "expires\t" in shell("show", "mine").out


def test_a_failed_job_shows_that_its_queue_may_keep_it_for_longer(shell: Shell) -> None:
    shell("enqueue", "any.task", "--id", "mine", "--keep", "1h")
    shell("fail", "mine")
    shown = shell("show", "mine").out
    assert "kept\tfor 1h after its end, or as long as its queue keeps failed jobs" in shown


def test_keep_is_a_duration_yes_or_no(shell: Shell) -> None:
    for text, keep in {"3600": timedelta(hours=1), "no": False, "yes": True}.items():
        id = shell("enqueue", "any.task", "--keep", text).out.strip()
        assert shell.client.get(id).keep == keep
    assert "yes or no" in shell("enqueue", "any.task", "--keep", "maybe").err


@pytest.mark.parametrize("word", ["ticket", "=17"])
def test_a_field_is_a_name_and_a_text(shell: Shell, word: str) -> None:
    code, _, err = shell("enqueue", "any.task", "--field", word)
    assert (code, f"expected NAME=TEXT, got {word!r}." in err) == (2, True)


def test_items_and_schedules_take_fields_too(shell: Shell) -> None:
    id = shell("items", "put", "mail", "x", "--field", "ticket=17", "--keep", "1h").out.strip()
    assert (shell.client.get(id).fields, shell.client.get(id).keep) == ({"ticket": "17"}, timedelta(hours=1))
    shell("schedules", "add", "nightly", "any.task", "--every", "1d", "--field", "ticket=18")
    shell("schedules", "trigger", "nightly")
    [job] = shell.client.list(queue="default")
    assert shell.client.get(job.id).fields == {"ticket": "18"}
