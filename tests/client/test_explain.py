"""Why a job is not running, in Python: one sentence, its code and facts, and the command that would help."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from holdfast import Holdfast, JobNotFound, ResultTimeout
from holdfast.job import failure, reasons
from holdfast.job.explanation import Explanation, read_explanation
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from holdfast.task import PROGRAM
from tests.apps import worker_app
from tests.conftest import TestClock
from tests.store.lua.test_explain import be_idle, serve
from tests.store.lua.test_state_machine import end, keep, put, take
from tests.support.servers import running_server

PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
WHY_PAGE = (Path(__file__).parents[2] / "docs" / "why.md").read_text()


def said(store: Store, id: str = "a", home: Path | None = None) -> Explanation:
    [row] = store.run(commands.explain([id]))
    assert row is not None
    return read_explanation(row, home)


def test_every_code_of_the_protocol_has_a_text_and_is_on_the_page() -> None:
    section = PROTOCOL.partition("### `explain`")[2].partition("\n### ")[0]
    codes = set(re.findall(r"^\| `([\w-]+)` \| [^l]", section, re.M)) - {"ids"}
    assert codes == {*reasons.TEXTS}
    assert codes <= set(re.findall(r"`([\w-]+)`", WHY_PAGE))


@pytest.mark.parametrize(
    "about", ['{"queues":["\\u001b[2J\\nx"]}', '{"tasks":["\\u001b[2J\\ntask"]}'], ids=["queues", "tasks"]
)
def test_what_workers_report_cannot_forge_lines_or_control_a_terminal(store: Store, about: str) -> None:
    put(store, "a")
    serve(store, "other" if "queues" in about else "q", about=about)
    text = said(store).text
    assert text.isprintable()
    assert r"\x1b[2J\n" in text


def test_a_code_of_a_newer_release_is_named() -> None:
    assert "vanished" in reasons.describe("vanished", {}, {}).text


def prepare_delay(store: Store, _: TestClock) -> None:
    put(store, "a", delay=90_000)


def prepare_retry(store: Store, _: TestClock) -> None:
    put(store, "a", retries=3, backoff=60_000)
    take(store)
    error = failure.describe(ValueError("too\nsmall"))
    end(store, "a", Error(failure.encode(error), "ValueError"))


def prepare_blocked(store: Store, _: TestClock) -> None:
    put(store, "first", "second")
    put(store, "a", after=["first", "second"])
    take(store)
    end(store, "first", Error(b"{}", "x", final=True))


def prepare_limit(store: Store, _: TestClock) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "r", "a", limits=("gpu",))
    take(store, limit=2)


def prepare_rate(store: Store, _: TestClock) -> None:
    store.run(commands.set_limit("api", 1, per=60_000))
    put(store, "r", "a", limits=("api",))
    take(store, limit=2)


def prepare_concurrency(store: Store, _: TestClock) -> None:
    store.run(commands.configure("q", set={"concurrency": 1}))
    put(store, "r", "a")
    take(store)


def prepare_behind(store: Store, _: TestClock) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "r", "a", limits=("gpu",))


def prepare_pause(store: Store, _: TestClock) -> None:
    put(store, "a")
    store.run(commands.pause("q"))


def prepare_busy(store: Store, _: TestClock) -> None:
    put(store, "r", "s", "b", "a")
    take(store, limit=2)


def prepare_silent(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store, lease=3_600_000)
    clock.advance(60)


def prepare_ended(store: Store, _: TestClock) -> None:
    put(store, "a")
    take(store)
    end(store, "a", Succeed(b"1"))


def prepare_other_task(store: Store, _: TestClock) -> None:
    put(store, "a", task="taks")


def prepare_program(store: Store, _: TestClock) -> None:
    put(store, "a", task=PROGRAM)


TOLD = [
    (prepare_delay, "not-due", r"it is due in 1m30s, at \d\d:\d\d:\d\d UTC", ""),
    (prepare_retry, "retrying", r"attempt 1 ended as error: ValueError: too\\nsmall; retry 1 of 3 is due in 1m, at .*",
     "holdfast show a"),
    (prepare_blocked, "blocked", r"it waits for first \(failed\), second \(waiting\)", "holdfast retry first"),
    (prepare_limit, "limit", "limit gpu has no free slot: its 1 slot is held by r", "holdfast limits show gpu"),
    (prepare_rate, "limit",
     "limit api has no free slot: it lets 1 job start in 1m; the next one may start in 1m, at .*",
     "holdfast limits show api"),
    (prepare_concurrency, "concurrency", "queue q runs at most 1 job at once: those are r",
     "holdfast config set concurrency=2 -Q q"),
    (prepare_behind, "limit", "limit gpu has 1 free slot, which other jobs are offered first",
     "holdfast limits show gpu"),
    (prepare_pause, "paused", "queue q is paused", "holdfast queues resume q"),
    (prepare_busy, "busy", "all slots of the worker of queue q are busy with 2 jobs, and 1 job is ahead of it",
     "holdfast load q"),
    (prepare_silent, "running", "its worker sent its last heartbeat 1m ago; unless it comes back, .*",
     "holdfast workers"),
    (prepare_ended, "ended", "it has succeeded", ""),
    (prepare_other_task, "unknown-task", r"no live worker of queue q knows task taks; did you mean task\?",
     "holdfast work APP --queues q"),
    (prepare_program, "no-exec", "no live worker of queue q runs programs",
     "holdfast work APP --queues q --allow-exec"),
]  # fmt: skip


Told = tuple[Callable[[Store, TestClock], None], str, str, str]


@pytest.mark.parametrize("told", TOLD, ids=[row[0].__name__[8:] for row in TOLD])
def test_the_reason_is_one_sentence(store: Store, clock: TestClock, told: Told) -> None:
    prepare, code, text, hint = told
    serve(store)
    prepare(store, clock)
    found = said(store)
    assert found.code == code
    first = found.text.split("; also, ")[0]
    assert re.fullmatch(text, first), first
    assert found.hint == hint
    assert "\n" not in found.text


def test_no_worker_is_told_apart_from_one_of_another_directory(store: Store) -> None:
    put(store, "a")
    assert said(store).text == "no worker is running"
    elsewhere = said(store, home=Path("/project/.holdfast"))
    assert "the embedded server in /project/.holdfast; a worker of another directory uses another" in elsewhere.text
    assert elsewhere.facts == {"home": "/project/.holdfast"}
    serve(store, "mail", about='{"queues":["mail"]}')
    assert said(store, home=Path("/x")).text == "no live worker serves queue q; they serve mail"


def test_times_and_numbers_are_facts(store: Store, clock: TestClock) -> None:
    serve(store)
    be_idle(store)
    prepare_delay(store, clock)
    found = said(store)
    assert found.until == found.facts["due"]
    assert found.until is not None
    assert found.since is not None
    assert (found.until - found.since).total_seconds() == 90
    prepare = {"id": "first", "state": "pending"}
    put(store, "first", delay=5)
    put(store, "b", after=["first"])
    assert said(store, "b").facts["by"] == [prepare | {"state": "scheduled"}]


def test_further_reasons_are_in_the_sentence_too(store: Store, clock: TestClock) -> None:
    prepare_pause(store, clock)
    found = said(store)
    assert found.text == "queue q is paused; also, no worker is running"
    assert [each.code for each in found.also] == ["no-worker"]
    assert str(found) == f"{found.text}; `holdfast queues resume q`"


def test_a_running_job_and_one_whose_lease_has_ended(store: Store, clock: TestClock) -> None:
    serve(store)
    put(store, "a")
    take(store)
    clock.advance(10)
    keep(store)
    assert re.match(r"node/one\.0 holds it since 10s; its lease ends in \d+s, at .*, unless", said(store).text)
    store.run(commands.cancel(["a"]))
    assert said(store).text == "node/one.0 is stopping it: it is being cancelled"
    clock.advance(100)
    assert "ended 1m20s ago: the next claim of any worker requeues it" in said(store).text


@pytest.mark.parametrize("attempt", [b"9" * 30, b"\xff" * 8 + b"\0" * 16 + b"-node/one.0"], ids=["outcome", "time"])
def test_a_damaged_attempt_is_no_error(store: Store, server_url: str, namespace: str, attempt: bytes) -> None:
    put(store, "failing", retries=3, backoff=60_000)
    put(store, "running")
    take(store)
    end(store, "failing", Error(b"{}", "ValueError"))
    take(store)
    with redis.Redis.from_url(server_url) as client:
        for id in ("failing", "running"):
            key = f"hf:{{{namespace}}}:j:{id}"
            saved = client.hget(key, "a1")
            assert saved
            client.hset(key, "a1", attempt)
            assert said(store, id).text
            client.hset(key, "a1", saved)


def test_a_damaged_dependency_is_named(store: Store, server_url: str, namespace: str) -> None:
    put(store, "first")
    put(store, "a", after=["first"])
    with redis.Redis.from_url(server_url) as client:
        client.hset(f"hf:{{{namespace}}}:a:a", "first", b"0 0")
    assert "it waits for first (damaged)" in said(store).text


# The client


@pytest.fixture
def app(server_url: str, namespace: str) -> Holdfast:
    app = Holdfast(server_url, namespace=namespace)

    @app.task(name="task")
    def task() -> None: ...

    return app


def test_jobs_explain_themselves(app: Holdfast) -> None:
    job = app.enqueue(app.tasks["task"].bind())
    assert job.explain().text == app.explain(job.id).text == "no worker is running"
    found = app.explain_many([job.id, "nobody"])
    assert [each and each.code for each in found] == ["no-worker", None]
    with pytest.raises(JobNotFound, match="nobody"):
        app.explain("nobody")
    many = app.enqueue_many([app.tasks["task"].bind() for _ in range(150)])
    assert [each and each.ahead for each in app.explain_many([each.id for each in many])] == list(range(1, 151))


def test_sync_and_async_say_the_same(app: Holdfast) -> None:
    import asyncio

    async def ask(id: str) -> list[str]:
        job = await app.aget(id)
        found = [await job.aexplain(), await app.aexplain(id), *(await app.aexplain_many([id]))]
        await app.aclose()
        return [each.text for each in found if each]

    job = app.enqueue(app.tasks["task"].bind())
    assert asyncio.run(ask(job.id)) == ["no worker is running"] * 3


def test_a_timeout_carries_the_explanation(app: Holdfast) -> None:
    job = app.enqueue(app.tasks["task"].bind())
    with pytest.raises(ResultTimeout, match="it is still waiting: no worker is running") as late:
        job.result(timeout="50ms")
    assert late.value.explanation.code == "no-worker"


def test_a_timeout_stays_one_when_the_server_falls_silent() -> None:
    with running_server() as url:
        app = Holdfast(url, timeout="2s")
        job = app.enqueue(worker_app.add_async.bind(1, 2))
        with redis.Redis.from_url(url) as client:
            client.execute_command("CLIENT", "PAUSE", "8000", "ALL")
            began = time.monotonic()
            found = app._explain_timeout(job.id, "waiting")
            assert time.monotonic() - began < 4
        assert found is not None
        assert (found.code, found.state) == ("unreachable", "waiting")
        assert "the server has stopped answering" in found.text
        app.close()
