"""Pages of jobs: why each is not running, in every variant, on real jobs; the list, rows, actions; who sees what."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.job import failure
from holdfast.job.outcome import Crash, Error, Release, Snoozed, Succeed, Unknown
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease, LogBlock
from holdfast.store.store import Store
from holdfast.task import PROGRAM
from tests.conftest import TestClock
from tests.store.lua.test_explain import be_idle, serve
from tests.store.lua.test_state_machine import ONE, TWO, end, keep, put, take
from tests.support.new_job import NewJob
from tests.web.conftest import Serving
from tests.web.reading import Element, read_page
from tests.web.serving import Web, user_of

AGO = 3600  # seconds before now, when the jobs of these tests begin


@pytest.fixture
def clock() -> TestClock:
    """The clock of the test, an hour ago; pages show what is true now, by the server's clock."""
    made = TestClock()
    made.now = round((time.time() - AGO) * 1000)
    return made


@pytest.fixture(autouse=True)
def workers_are_alive(jobs: Holdfast, store: Store) -> None:
    """Nothing but the jobs of a test is in the namespace."""
    assert jobs.address.namespace == store.address.namespace


def page(web: Web, path: str, **headers: str) -> Element:
    response = web.get(path, headers=headers)
    assert response.status_code == 200, response.text[:2000]
    return read_page(response.text)


def to_now(clock: TestClock) -> None:
    clock.now = round(time.time() * 1000)


def fail_attempt(store: Store, id: str = "a", text: str = "no answer", attempt: int = 1, **more: Any) -> None:
    error = failure.describe(ConnectionError(text))
    end(store, id, Error(failure.encode(error), "ConnectionError", **more), attempt=attempt)


# Why it is not running. Each prepares job `a`, and may move the clock; then it is now.


def due_later(store: Store, _: TestClock) -> None:
    put(store, "a", delay=(AGO + 600) * 1000)


def retries(store: Store, _: TestClock) -> None:
    put(store, "a", retries=3, backoff=3 * AGO * 1000)
    take(store)
    fail_attempt(store)


def was_snoozed(store: Store, _: TestClock) -> None:
    put(store, "a")
    take(store)
    end(store, "a", Snoozed(3 * AGO * 1000))


def task_unknown_to_the_last_worker(store: Store, clock: TestClock) -> None:
    put(store, "a")
    to_now(clock)
    take(store)
    end(store, "a", Unknown())


def must_run_alone(store: Store, clock: TestClock) -> None:
    put(store, "a", "b")
    to_now(clock)
    take(store, limit=2)
    store.run(commands.requeue_orphaned(executor=ONE))
    take(store, TWO)
    store.run(commands.finish(TWO, [Finish("a", 2, Release("it must run alone", 3600_000), unstarted=True)]))


def blocked_by_one_that_runs(store: Store, clock: TestClock) -> None:
    put(store, "first")
    put(store, "a", after=["first"])
    to_now(clock)
    take(store)


def blocked_by_one_that_failed(store: Store, _: TestClock) -> None:
    put(store, "first", "second")
    put(store, "a", after=["first", "second"])
    take(store)
    end(store, "first", Error(b"{}", "x", final=True))


def throttled_by_slots(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("gpu", 1))
    put(store, "r", "a", limits=("gpu",))
    to_now(clock)
    take(store, limit=2)


def throttled_by_a_rate(store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1, per=3 * AGO * 1000))
    put(store, "r", "a", limits=("api",))
    to_now(clock)
    take(store, limit=2)


def in_a_full_queue(store: Store, clock: TestClock) -> None:
    store.run(commands.configure("q", set={"concurrency": 1}))
    put(store, "r", "a")
    to_now(clock)
    take(store)


def in_a_paused_queue(store: Store, _: TestClock) -> None:
    put(store, "a")
    store.run(commands.pause("q"))


def behind_others(store: Store, clock: TestClock) -> None:
    put(store, "r", "b", "a")
    to_now(clock)
    take(store)


def next_to_start(store: Store, clock: TestClock) -> None:
    put(store, "a")
    to_now(clock)
    be_idle(store, "other")


def of_an_unknown_task(store: Store, _: TestClock) -> None:
    put(store, "a", task="taks")


def a_program(store: Store, _: TestClock) -> None:
    put(store, "a", task=PROGRAM)


def past_its_deadline(store: Store, _: TestClock) -> None:
    put(store, "a", deadline=5000)


def being_cancelled(store: Store, clock: TestClock) -> None:
    put(store, "a")
    to_now(clock)
    take(store)
    store.run(commands.cancel(["a"], reason="twice"))


def on_a_silent_worker(store: Store, clock: TestClock) -> None:
    put(store, "a")
    clock.now = round(time.time() * 1000) - 60_000
    keep(store, queues=["q"])
    take(store, lease=3600_000)


def with_an_expired_lease(store: Store, _: TestClock) -> None:
    put(store, "a")
    take(store, lease=30_000)


def failed_with_a_checkpoint(store: Store, clock: TestClock) -> None:
    put(store, "a", retries=0)
    take(store)
    store.run(commands.save(Lease(ONE, "a", 1), b'{"epoch": 9007199254740993}'))
    clock.advance(5)
    fail_attempt(store)


def failed_by_crashes(store: Store, _: TestClock) -> None:
    put(store, "a", retries=3, crashes=1)
    for attempt in (1, 2):
        take(store)
        crash = failure.encode(failure.Failure(type="Crash", message="signal SIGKILL", group="crashed"))
        end(store, "a", Crash(crash), attempt=attempt)


def failed_by_timeouts(store: Store, _: TestClock) -> None:
    put(store, "a", retries=3, timeouts=0)
    take(store)
    stopped = failure.encode(failure.Failure(type="Timeout", message="ran for longer than 2 s", group="timeout"))
    end(store, "a", Error(stopped, "timeout"))


def failed_by_hand(store: Store, _: TestClock) -> None:
    put(store, "a")
    store.run(commands.fail(["a"], reason="bad order"))


def failed_by_its_deadline(store: Store, clock: TestClock) -> None:
    put(store, "a", deadline=5000)
    clock.advance(6)
    take(store)


def cancelled(store: Store, _: TestClock) -> None:
    put(store, "a")
    store.run(commands.cancel(["a"], reason="uploaded twice"))


class Variant(NamedTuple):
    """What the page of job `a` says: the colour, words of the sentence, buttons that help, and the command."""

    prepare: Callable[[Store, TestClock], None]
    colour: str
    words: str
    buttons: list[str]
    command: str
    alive: bool = True  # whether its worker still sends heartbeats; one that does has the store notice what is over


VARIANTS = [
    Variant(due_later, "scheduled", "Due ", [], "holdfast why a"),
    Variant(retries, "scheduled", "Attempt 1 failed with ConnectionError; the next one starts in", ["Fail it…"],
            "holdfast show a"),
    Variant(was_snoozed, "scheduled", "Attempt 1 was snoozed; the next one is due", [], "holdfast why a"),
    Variant(task_unknown_to_the_last_worker, "failed", "Its last worker does not know task task.", ["Fail it…"],
            "holdfast work APP --queues q"),
    Variant(must_run_alone, "waiting", "It must run alone", ["Fail it…"], "holdfast work APP --queues q"),
    Variant(blocked_by_one_that_runs, "blocked", "Blocked by first, which is running.", ["Show graph"],
            "holdfast why first"),
    Variant(blocked_by_one_that_failed, "failed", "Blocked by 2 jobs, of which 1 will not end by itself.",
            ["Retry the failed job", "Do not wait for it", "Show graph"], "holdfast retry first"),
    Variant(throttled_by_slots, "throttled", "Throttled by limit gpu: 1 of 1 slots are held.", ["Show holders"],
            "holdfast limits show gpu"),
    Variant(throttled_by_a_rate, "throttled", "Throttled by limit api: it lets 1 job start in 3 h.", ["Show holders"],
            "holdfast limits show api"),
    Variant(in_a_full_queue, "waiting", "Queue q runs at most 1 job at once, and 1 run.", ["Show the queue"],
            "holdfast config set concurrency=2 -Q q"),
    Variant(in_a_paused_queue, "waiting", "Queue q is paused.", ["Resume the queue"], "holdfast queues resume q"),
    Variant(behind_others, "waiting", "All slots that serve q are busy, and 1 job is ahead of this one.",
            ["Run next", "Show the queue"], "holdfast move --priority -256 a"),
    Variant(next_to_start, "waiting", "It is about to start: it is next in queue q.", ["Show the queue"],
            "holdfast load q"),
    Variant(of_an_unknown_task, "failed", "No worker knows task taks.", ["Move to another queue…", "Fail it…"],
            "holdfast work APP --queues q"),
    Variant(a_program, "failed", "No worker of queue q runs programs.", ["Move to another queue…", "Fail it…"],
            "holdfast work APP --queues q --allow-exec"),
    Variant(past_its_deadline, "failed", "Its deadline has passed", [], "", alive=False),
    Variant(being_cancelled, "running", "It is being stopped by node/one.0.", [], "holdfast show a"),
    Variant(with_an_expired_lease, "failed", "The lease of node/one.0 ended 59 min ago.", [],
            "holdfast work APP --queues q", alive=False),
    Variant(failed_with_a_checkpoint, "failed", "Failed: attempt 1 of 1 raised ConnectionError.",
            ["Retry from the checkpoint", "Retry from the start…"], "holdfast retry a"),
    Variant(failed_by_crashes, "failed", "Failed: attempt 2 crashed.", ["Retry"], "holdfast retry a"),
    Variant(failed_by_timeouts, "failed", "Failed: attempt 1 was stopped by a Timeout.", ["Retry"],
            "holdfast retry a"),
    Variant(failed_by_hand, "failed", "Failed by hand", ["Retry"], "holdfast retry a"),
    Variant(failed_by_its_deadline, "failed", "Failed: its deadline passed before an attempt started.", ["Retry"],
            "holdfast retry a"),
    Variant(cancelled, "cancelled", "Cancelled by", ["Retry"], "holdfast retry a"),
]  # fmt: skip


def why_of(found: Element) -> Element:
    return found.one("section", "why")


@pytest.mark.parametrize("variant", VARIANTS, ids=[each.prepare.__name__ for each in VARIANTS])
def test_the_page_says_why_a_job_is_not_running_and_what_would_help(
    web: Web, store: Store, clock: TestClock, variant: Variant
) -> None:
    serve(store)
    variant.prepare(store, clock)
    to_now(clock)
    if variant.alive:
        serve(store)

    why = why_of(page(web, "/jobs/a"))

    assert variant.words in why.all("h2")[0].text
    assert variant.colour in why.classes
    assert set(variant.buttons) <= set(why.buttons())
    assert (variant.command in [each.text for each in why.all("code")]) or not variant.command


@pytest.mark.parametrize(
    "case",
    [
        (failed_by_crashes, "signal SIGKILL. It may outlive 1 crash; this was one more.", "2"),
        (failed_by_timeouts, "ran for longer than 2 s. It may not outlive a timeout.", "1"),
        (failed_with_a_checkpoint, "no answer. No retry is allowed. The checkpoint is kept, so", "1 of 1"),
        (failed_by_its_deadline, "A retry removes the deadline.", "0"),
    ],
)
def test_the_page_says_which_budget_was_used_up(
    web: Web, store: Store, clock: TestClock, case: tuple[Callable[[Store, TestClock], None], str, str]
) -> None:
    prepare, words, attempts = case
    prepare(store, clock)
    why = why_of(page(web, "/jobs/a"))
    assert why.all("p")[0].text.startswith(words)
    assert (
        dict(zip([each.text for each in why.all("dt")], [each.text for each in why.all("dd")], strict=True))["Attempts"]
        == attempts
    )


def test_a_worker_that_is_silent_is_told_apart_from_one_that_works(web: Web, store: Store, clock: TestClock) -> None:
    on_a_silent_worker(store, clock)
    why = why_of(page(web, "/jobs/a"))
    assert why.all("h2")[0].text.startswith("Its worker has been silent for")
    assert "failed" in why.classes


@pytest.mark.parametrize("other", [False, True], ids=["none", "of another queue"])
def test_without_a_worker_for_its_queue_the_page_says_so(web: Web, store: Store, clock: TestClock, other: bool) -> None:
    put(store, "a")
    to_now(clock)
    if other:
        serve(store, "mail", about='{"queues":["mail"]}')
    why = why_of(page(web, "/jobs/a"))
    assert why.all("h2")[0].text == ("No live worker serves queue q." if other else "No worker is running.")
    assert "failed" in why.classes
    assert "holdfast work APP --queues q" in [each.text for each in why.all("code")]


def test_draining_workers_are_named(web: Web, store: Store, clock: TestClock) -> None:
    put(store, "a")
    to_now(clock)
    serve(store, about='{"draining":true}')
    assert "are draining" in why_of(page(web, "/jobs/a")).all("h2")[0].text


def test_a_job_that_runs_or_has_succeeded_needs_no_explanation(web: Web, store: Store, clock: TestClock) -> None:
    put(store, "a", "b")
    to_now(clock)
    serve(store)
    take(store, limit=2)
    end(store, "b", Succeed(b"1"))
    for id in ("a", "b"):
        assert page(web, f"/jobs/{id}").all("section", "why") == []


def test_a_record_that_cannot_be_read_has_a_page(web: Web, store: Store, server_url: str, namespace: str) -> None:
    import redis

    put(store, "a")
    with redis.Redis.from_url(server_url) as client:
        client.hset(f"hf:{{{namespace}}}:j:a", "h", b"\x01")
        found = page(web, "/jobs/a")
        client.delete(f"hf:{{{namespace}}}:j:a")
    assert "This record cannot be read" in why_of(found).text
    assert "unreadable" in found.text


def test_the_checks_of_a_claim_say_which_is_the_obstacle(web: Web, store: Store, clock: TestClock) -> None:
    in_a_paused_queue(store, clock)
    rows = [row.text for row in page(web, "/jobs/a").one("table", "gates").all("tr")[1:]]
    assert rows[0] == "passedDueyes"
    assert rows[1] == "not passedQueue is not pausedqueue q is paused"


# What else the page of a job has


def test_numbers_are_shown_with_all_their_digits(web: Web, store: Store, clock: TestClock) -> None:
    failed_with_a_checkpoint(store, clock)
    put(store, "b", payload=b'{"n": 123456789012345678901234567890, "x": 1.10}')
    take(store)
    end(store, "b", Succeed(b"18014398509481985.50"))
    found = page(web, "/jobs/a").text, page(web, "/jobs/b").text
    assert '"epoch": 9007199254740993' in found[0]
    assert '"n": 123456789012345678901234567890, "x": 1.10' in found[1]
    assert "18014398509481985.50" in found[1]


def test_the_story_is_drawn_and_told(web: Web, store: Store, clock: TestClock) -> None:
    put(store, "a", retries=3, backoff=20_000)
    clock.advance(100)
    take(store)
    clock.advance(300)
    fail_attempt(store)
    clock.advance(60)
    take(store)
    clock.advance(100)
    end(store, "a", Succeed(b"1"), attempt=2)
    found = page(web, "/jobs/a")
    story = next(each for each in found.all("section") if each.attributes.get("aria-labelledby") == "h-story")
    lines = [each.text for each in story.one("ol", "line").all("li")]
    assert "Attempt 2 succeeded after 1 min 40 s" in lines[0]
    assert "Attempt 1 failed: ConnectionError: no answer after 5 min" in " ".join(lines)
    assert "Waited in its queue" in " ".join(lines)
    assert "Created" in lines[-1]
    drawn = story.one("svg", "chart")
    assert {"Attempt 1", "Attempt 2", "ConnectionError"} <= {each.text.partition(":")[0] for each in drawn.all("title")}
    assert page(web, "/jobs/a?time=scale").all("svg", "chart")


def test_the_log_of_each_attempt_is_shown(web: Web, store: Store, clock: TestClock) -> None:
    put(store, "a", retries=3, backoff=1)
    for number in (1, 2):
        to_now(clock)
        clock.advance(number * 10)
        take(store)
        created = store.run(commands.get(["a"]))[0]["created"]  # type: ignore[index]
        store.run(commands.log([LogBlock("a", created, number, 0, f"line {number}\nlast\n".encode())]))
        if number == 1:
            fail_attempt(store)
    found = page(web, "/jobs/a")
    log = found.one("ol", "log")
    assert [each.text for each in log.all("li")] == ["line 2", "last"]
    assert log.attributes["data-log"].endswith("/jobs/a/attempts/latest/log")
    first = page(web, "/jobs/a?attempt=1").one("ol", "log")
    assert [each.text for each in first.all("li")] == ["line 1", "last"]
    assert "data-log" not in first.attributes
    assert web.get("/jobs/a?attempt=0").status_code == 422
    fail_attempt(store, attempt=2)
    waiting = page(web, "/jobs/a").one("ol", "log")
    assert "data-log" in waiting.attributes  # the next attempt is followed, however short it is


def test_a_run_is_compared_with_others_of_its_task(web: Web, store: Store, clock: TestClock) -> None:
    for number in range(8):
        put(store, f"r{number}")
        take(store)
        clock.advance(10 + number)
        end(store, f"r{number}", Succeed(b"1"))
    found = page(web, "/jobs/r4")
    assert "Compared with other runs" in found.text
    assert "of 8 runs of task took longer" in found.text
    assert web.call("GET", "/jobs/r4/comparison")["run"]["count"] == 8
    table = found.one("div", "compare").one(
        "table"
    )  # a log axis: no bucket is left out, each is twice as wide as the last
    assert [row.all("td")[0].text for row in table.all("tr")[1:]] == ["8 s to 15 s", "15 s to 30 s"]


def test_dependents_and_dependencies_are_linked(web: Web, store: Store, clock: TestClock) -> None:
    blocked_by_one_that_runs(store, clock)
    assert "/jobs/first" in [each.attributes.get("href") for each in page(web, "/jobs/a").all("a")]
    assert "/jobs/a" in [each.attributes.get("href") for each in page(web, "/jobs/first").all("a")]
    graph = page(web, "/jobs/a/graph")
    assert [each.attributes["href"] for each in graph.one("svg", "network").all("a")] == ["/jobs/a", "/jobs/first"]
    assert len(graph.one("table").all("tr")) == 3


def test_a_graph_of_more_than_three_hundred_jobs_is_a_list(web: Web, store: Store) -> None:
    put(store, "first")
    put(store, *(f"w{number}" for number in range(310)), after=["first"])
    found = page(web, "/jobs/first/graph")
    assert found.all("svg", "network") == []
    assert len(found.one("table").all("tr")) == 301


# The list


def rows(found: Element) -> list[Element]:
    return [each for each in found.all("tr") if "data-key" in each.attributes]


def test_the_list_answers_in_each_row(web: Web, store: Store, clock: TestClock) -> None:
    serve(store)
    expected = {
        "blocked": "waits for first", "later": "due in", "failed": "ConnectionError: no answer",
        "gpu2": "limit gpu: 1 of 1", "cancelled": "“not wanted”", "done": "took 2 min, waited 0 s", "run": "40 % ",
        "retrying": "retry 1 of 3 in",
    }  # fmt: skip
    put(store, "done", "failed", retries=0)
    take(store, limit=2)
    clock.advance(120)
    end(store, "done", Succeed(b"1"))
    fail_attempt(store, "failed")
    put(store, "retrying", retries=3, backoff=3 * AGO * 1000)
    take(store)
    fail_attempt(store, "retrying")
    put(store, "cancelled")
    store.run(commands.cancel(["cancelled"], reason="not wanted"))
    to_now(clock)
    serve(store)
    store.run(commands.set_limit("gpu", 1))
    put(store, "run", "first")
    put(store, "gpu1", "gpu2", limits=("gpu",), queue="gpu")
    put(store, "blocked", after=["first"])
    put(store, "later", delay=600_000)
    take(store)
    store.run(commands.save(Lease(ONE, "run", 1), None, progress='{"progress": 0.4, "attempt": 1}'))
    take(store, ONE, "gpu", limit=2)
    found = {row.attributes["data-key"]: row.text for row in rows(page(web, "/jobs"))}
    for id, words in expected.items():
        assert words in found[id], (id, found[id])


def test_the_text_and_the_chips_are_the_same_query(web: Web, store: Store) -> None:
    put(store, "a", tags=("new",))
    put(store, "b", queue="mail")
    found = page(web, "/jobs?q=tag:new+queue:q")
    assert [row.attributes["data-key"] for row in rows(found)] == ["a"]
    chips = found.all("span", "chip")
    assert [each.text for each in chips] == ["queue q", "tag new"]
    assert [each.one("a").attributes["href"] for each in chips] == ["/jobs?tag=new", "/jobs?queue=q"]
    assert page(web, "/jobs?tag=new").one("form", "query").one("input").attributes["value"] == "tag:new"
    assert "holdfast jobs --queue q --tag new" in found.text


def test_a_query_that_cannot_be_read_stays_to_be_mended(web: Web) -> None:
    found = page(web, "/jobs?q=statt:failed")
    assert "did you mean state?" in found.text
    assert found.one("form", "query").one("input").attributes["value"] == "statt:failed"
    assert "unknown state" in page(web, "/jobs?q=state:qeued").text


def test_tabs_have_exact_counts_of_the_queues_that_are_meant(web: Web, store: Store) -> None:
    put(store, *(f"a{number}" for number in range(7)))
    put(store, "b", queue="mail")

    def tabs(path: str) -> list[str]:
        return [each.text for each in page(web, path).one("nav", "tabs").all("a")]

    assert tabs("/jobs")[:2] == ["All", "Waiting 8"]
    assert tabs("/jobs?queue=mail")[1] == "Waiting 1"
    assert tabs("/jobs?tag=x")[1] == "Waiting"


def test_a_list_has_pages(web: Web, store: Store) -> None:
    put(store, *(f"a{number:03}" for number in range(120)))
    seen: list[str] = []
    path = "/jobs?queue=q"
    while path:
        found = page(web, path)
        seen += [row.attributes["data-key"] for row in rows(found)]
        path = next((each.attributes["href"] for each in found.all("a") if each.attributes.get("rel") == "next"), "")
    assert sorted(seen) == [f"a{number:03}" for number in range(120)]
    assert len(set(seen)) == len(seen)


def test_a_filter_without_an_index_looks_at_a_bounded_number_of_jobs(
    web: Web, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.resources.jobs.MAX_LOOKED_AT", 500)
    put(store, "needle", task="rare")
    for first in range(0, 2000, 500):
        put(store, *(f"hay-{first + number:05}" for number in range(500)))
    found = page(web, "/jobs?task=rare")
    assert rows(found) == []
    assert "The list goes on" in found.text
    path = next(each.attributes["href"] for each in found.all("a") if each.attributes.get("rel") == "next")
    assert "cursor=" in path


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = page(web, "/jobs?state=failed")
    assert "No failed jobs" in found.text
    assert "holdfast jobs --state failed" in found.text
    assert "holdfast enqueue TASK" in page(web, "/jobs").text


# Actions without scripts


def submit(web: Web, path: str, form: dict[str, Any]) -> Element:
    """Send a form as a browser without scripts does, and return the page that it leads to."""
    response = web.post(path, data=form, headers={"Origin": web.url})
    assert response.status_code == 303, response.text
    return page(web, response.headers["location"])


def test_selected_jobs_are_acted_on_and_refusals_are_told(web: Web, store: Store) -> None:
    put(store, "a", "b", "c")
    store.run(commands.cancel(["a", "b"]))
    found = submit(web, "/api/v1/jobs:retry", {"ids": ["a", "b", "c"], "_next": "/jobs"})
    assert "Retried 2 jobs. 1 refused: job c " in found.one("div", "toast").text


def test_all_matches_are_retried_after_a_preview_with_progress(web: Web, store: Store) -> None:
    put(store, *(f"a{number}" for number in range(30)))
    put(store, "other", queue="mail")
    store.run(commands.cancel([f"a{number}" for number in range(30)]))
    selected = page(web, "/jobs?state=cancelled&queue=q&all=true")
    assert "All 30 matches are selected" in selected.text
    link = next(each for each in selected.all("a", "btn") if each.text == "Retry…")
    preview = page(web, link.attributes["href"])
    assert preview.one("h1").text == "Retry 30 jobs?"
    assert [(each.text) for each in preview.all("dl", "kv")[0].all("dd")] == ["30"]
    form = next(each for each in preview.all("form") if each.attributes["action"] == "/api/v1/operations")
    fields = {
        each.attributes["name"]: each.attributes["value"] for each in form.all("input") if "value" in each.attributes
    }
    fields.pop("from_start")
    done = submit(web, "/api/v1/operations", fields)
    assert done.one("h1").text == "Retrying jobs"
    id = done.one("code", "id").text
    web.jobs.operation(id).wait()
    assert web.jobs.count(state="waiting", queue="q") == 30
    shown = page(web, f"/operations/{id}").text
    assert "30 jobs done" in shown
    assert "state:cancelled queue:q" in shown
    assert id in page(web, "/operations").one("tbody").all("a")[0].attributes["href"]


def test_a_stopped_operation_can_go_on(web: Web, store: Store) -> None:
    put(store, "a")
    operation = web.jobs.cancel_all(queue="q", wait=False)
    path = f"/operations/{operation.id}"
    assert "Stop" in page(web, path).buttons()
    submit(web, f"/api/v1{path}", {"_method": "DELETE", "_next": path})
    found = page(web, path)
    assert "Stopped" in found.text
    assert "Continue" in found.buttons()


def test_an_action_on_nothing_offers_no_button(web: Web) -> None:
    assert "No job would be changed" in page(web, "/operations/new?action=delete&tag=x").text
    assert web.get("/operations/new?action=delete").status_code == 422


def test_a_fork_leads_to_the_new_job(web: Web, store: Store, clock: TestClock) -> None:
    failed_with_a_checkpoint(store, clock)
    found = submit(web, "/api/v1/jobs/a:fork", {"from_start": "true", "queue": "q", "_next": "made"})
    assert "Forked from" in found.text


# Find


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("job-1", "/jobs/job-1"),
        ("mail", "/queues/mail"),
        ("state:failed queue:mail", "/jobs?q=state%3Afailed+queue%3Amail"),
        ("job", "/jobs/job-1"),
        ("app.send", "/jobs?task=app.send"),
    ],
)
def test_what_is_found_alone_is_opened(web: Web, store: Store, clock: TestClock, text: str, target: str) -> None:
    put(store, "job-1", queue="mail", task="app.send")
    to_now(clock)
    take(store, ONE, "mail")
    response = web.get("/find", params={"q": text})
    assert (response.status_code, response.headers.get("location")) == (303, target)


def test_several_matches_are_listed(web: Web, store: Store) -> None:
    put(store, "job-1", "job-2", queue="mail-1")
    put(store, "x", queue="mail-2")
    assert {"job-1", "job-2"} <= {each.text for each in page(web, "/find?q=job").all("span", "sub")}
    assert "mail-2" in page(web, "/find?q=MAIL").text
    assert "Nothing was found" in page(web, "/find?q=nowhere").text
    assert page(web, "/find").one("h1").text == "Find"


# Rights


@pytest.fixture
def guarded(serving: Serving) -> Web:
    return serving(auth=user_of)


def test_who_may_not_see_data_sees_that_it_is_hidden(guarded: Web, store: Store, clock: TestClock) -> None:
    failed_with_a_checkpoint(store, clock)
    viewer = {"x-user": "viewer"}
    found = page(guarded, "/jobs/a", **viewer)
    assert "no answer" not in found.text
    assert "9007199254740993" not in found.text
    assert "[redacted]" not in found.text
    for hidden in (
        "Hidden: this needs the right to see data of jobs.",
        "The log is hidden",
        "Fields and notes are hidden",
    ):
        assert hidden in found.text
    [row] = rows(page(guarded, "/jobs", **viewer))
    assert row.text.count("hidden") == 2
    assert guarded.get("/jobs/a", headers={"x-user": "operator"}).text.count("hidden: this needs") == 0


def test_who_may_not_act_sees_no_buttons(guarded: Web, store: Store, clock: TestClock) -> None:
    failed_with_a_checkpoint(store, clock)
    found = page(guarded, "/jobs/a", **{"x-user": "viewer"})
    forms = [each.attributes["action"] for each in found.all("form")]
    assert [each for each in forms if "/api/v1/jobs" in each] == []
    listed = page(guarded, "/jobs", **{"x-user": "viewer"})
    assert [each for each in listed.all("input") if each.attributes.get("type") == "checkbox"] == []
    assert guarded.get("/operations/new?action=retry&state=failed", headers={"x-user": "viewer"}).status_code == 403
    assert guarded.post("/jobs/a/stack", headers={"x-user": "viewer"}).status_code == 403


def test_jobs_of_other_queues_are_not_shown(guarded: Web, store: Store) -> None:
    put(store, "a")
    put(store, "b", queue="mail", after=["a"])
    mine = {"x-user": "operator mail"}
    assert [row.attributes["data-key"] for row in rows(page(guarded, "/jobs", **mine))] == ["b"]
    assert guarded.get("/jobs/a", headers=mine).status_code == 404
    assert "deleted, or hidden" in page(guarded, "/jobs/b", **mine).text
    assert "no rights on queue q" in page(guarded, "/jobs?queue=q", **mine).text
    assert "Nothing was found" in page(guarded, "/find?q=aa", **mine).text
    assert [each["id"] for each in guarded.call("GET", "/jobs:show?id=a&id=b", headers=mine)["items"]] == ["b"]


def test_a_page_that_is_not_there_leads_on(web: Web) -> None:
    gone = read_page(web.get("/jobs/nope", headers={"accept": "text/html"}).text)
    assert [link.attributes["href"] for link in gone.one("main", "").all("a")] == ["/jobs"]
    refused = web.post(
        "/api/v1/schedules", data={"schedule": "x", "task": "t", "cron": "no", "_next": "/schedules"},
        headers={"accept": "text/html", "origin": web.url},
    )  # fmt: skip
    assert refused.status_code == 422
    assert "what you typed is still there" in refused.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("since:2026-11-19", "since is '2026-11-19', without a time zone; in UTC, that is 2026-11-19T00:00:00Z"),
        ("mail billing", "id: is given twice; a word without a name is how an id begins"),
    ],
)
def test_a_query_says_how_it_is_mended(web: Web, text: str, words: str) -> None:
    assert words in page(web, f"/jobs?q={text}").one("p", "wrongly").text


@pytest.mark.parametrize(("title", "where"), [("Arguments", "payload"), ("Result", "result")])
def test_what_is_too_long_for_the_page_is_linked(web: Web, store: Store, title: str, where: str) -> None:
    text = f'["{"x" * 100_000}"]'.encode()
    store.run(commands.enqueue([NewJob(id="a", payload=text, queue="q", task="task")]))
    take(store)
    end(store, "a", Succeed(text))
    panel = next(each for each in page(web, "/jobs/a").all("section") if each.text.startswith(title))
    link = panel.one("footer").one("a").attributes["href"]
    assert link == f"/api/v1/jobs/a/{where}"
    assert "x" * 100_000 in web.get(link).text


@pytest.mark.parametrize(("action", "words"), [("move", "--to QUEUE"), ("tag", "--tag TAG"), ("cancel", "")])
def test_the_command_of_an_action_names_what_it_needs(web: Web, store: Store, action: str, words: str) -> None:
    put(store, "a")
    shown = [each.text for each in page(web, f"/operations/new?action={action}&queue=q").all("code")]
    assert f"holdfast {action} --all {words} --queue q".replace("  ", " ") in shown
    body = next(each for each in shown if each.startswith("curl")).split("'")[1]
    web.call("POST", "/operations", content=body)  # it is accepted as it is
