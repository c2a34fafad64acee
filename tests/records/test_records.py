"""Records have the types that their tables declare: those of everything in a store, and what commands answer.

Every table of the package is tested, also those whose records are only a part of others.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, get_origin

import msgspec
import pytest

from holdfast import Holdfast, Retries, records
from holdfast.cli.program import run as run_command
from holdfast.constants import USAGE_BLOCK
from holdfast.doctor import probe_server, run_checks
from holdfast.job.failure import Failure, encode
from holdfast.job.outcome import Blocked, Error, Succeed
from holdfast.job.usage import Series
from holdfast.records.jobs import details
from holdfast.records.limits import limit_details
from holdfast.records.logs import log_record
from holdfast.records.operations import counted_records
from holdfast.records.outbox import outbox_records
from holdfast.records.plans import plan_record
from holdfast.records.queues import load_record
from holdfast.records.schedules import schedule_details, schedule_record
from holdfast.records.status import server_summary, status_record
from holdfast.records.table import Nested, Record, Table
from holdfast.records.tags import scope_records, tag_records, tracked_records
from holdfast.records.top import Top
from holdfast.server import server as embedded
from holdfast.store import Store, commands
from holdfast.store.commands import Finish, Lease, LogBlock, Started
from holdfast.web.security.users import LOCAL, User
from holdfast.web.site import Site
from tests.conftest import TestClock
from tests.support.varied_store import BATCH, ONE, WORKER, claim, fill, put
from tests.web.serving import serve

FINGERPRINT = "9f86d081884c7d65"
READ_ONCE, CLI = "records-read", "records-cli"  # namespaces


def _tables() -> dict[str, Table]:
    """Return all tables of the package, by the names of their types."""
    found: dict[str, Table] = {}
    for module in pkgutil.iter_modules(records.__path__):
        for value in vars(importlib.import_module(f"holdfast.records.{module.name}")).values():
            for each in value.values() if isinstance(value, dict) else [value]:
                if isinstance(each, Table):
                    assert found.setdefault(each.name, each) is each, f"two tables have the name {each.name}"
    return found


TABLES = _tables()


# A store with everything in it


@pytest.fixture(scope="module")
def app(server_url: str) -> Iterator[Holdfast]:
    made, clock = Holdfast(server_url, namespace=READ_ONCE), TestClock()
    made.store = Store(made.address, clock=clock)
    _let_upkeep_find_something(made, clock)
    _declare_schedules(made, clock)
    fill(made.store, clock)
    _fail_jobs(made, clock)
    _work(made, clock)
    _wait_for_a_job(made)
    made.store.execute("HSET", f"hf:{{{READ_ONCE}}}:j:kept", "h", b"nonsense")  # its record cannot be read
    yield made
    _delete_keys(made)


def _delete_keys(app: Holdfast) -> None:
    app.store.execute("DEL", *app.store.execute("KEYS", f"hf:{{{app.address.namespace}}}:*"))
    app.close()


def _let_upkeep_find_something(app: Holdfast, clock: TestClock) -> None:
    app.configure({"check_rate": 1000})
    app.store.execute("SET", f"hf:{{{READ_ONCE}}}:surprise", "1")
    while not app.check_history().findings:
        clock.advance(1)
        app.upkeep()
    app.store.execute("DEL", f"hf:{{{READ_ONCE}}}:surprise")


def _double(x: int) -> int:
    return 2 * x


def _fail_jobs(app: Holdfast, clock: TestClock) -> None:
    """Fail two jobs in the same way, one of them twice."""
    failure = Failure(
        type="ValueError", message="bad", notes=("a note",), traceback="Traceback ...", group="ValueError",
        fingerprint=FINGERPRINT, place="app:double",
    )  # fmt: skip
    error = Error(encode(failure), "ValueError")
    policy = Retries(2, waits=["1s", "2s"], cap="1m", not_on=KeyError)
    budget = Retries(3, waits="5s")
    task = app.task(name="double", queue="fails")(_double)
    app.enqueue(task.bind(1).options(id="fails", retries=policy, timeouts=budget, stalls=budget, out_of_memory=budget))
    app.enqueue(task.bind(2).options(id="fails-too", retries=Retries(0, on=ValueError)))
    for attempt in (1, 2):
        for id in claim(app.store, "fails", 2):
            app.store.run(commands.finish(ONE, [Finish(id, attempt, error)], revision=7))
        clock.advance(5)
    app.note("fails", "looked at")


def _work(app: Holdfast, clock: TestClock) -> None:
    """Run jobs, one of them for some seconds, on a worker that reports about itself."""
    run, usage = app.store.run, Series()
    for number in range(3):
        put(app.store, f"quick{number}", "quick")
        clock.advance(1)
        claim(app.store, "quick")
        clock.advance(0.5)
        run(commands.finish(ONE, [Finish(f"quick{number}", 1, Succeed(b"1"))]))
    about = msgspec.json.encode({"pid": 7, "app": "shop", "memory": 5, "cpu_seconds": 1.5, "started": clock.now})
    run(commands.renew(WORKER, [], executors=[ONE], queues=["run"], about=about.decode()))
    progress = '{"progress":0.5,"done":5,"total":10,"counts":{"rows":7,"tons":2.5},"attempt":1,"after":2}'
    run(commands.save(Lease(ONE, "running", 1), b"[1]", progress=progress))
    usage.add(3.0, 1 << 20, 1.0)
    created = run(commands.get(["running"]))[0]["created"]  # type: ignore[index]
    run(commands.log([LogBlock("running", created, 1, USAGE_BLOCK, usage.text())]))
    app.track("doomed", "waiting")
    app.delete("doomed")
    app.fork("long", id="forked")
    app.batch("stopped").open()
    app.batch("stopped").cancel()
    run(commands.declare_limit("brief", 3, per=1000, revision=7))


def _declare_schedules(app: Holdfast, clock: TestClock) -> None:
    """Declare a schedule, change it, and let it fire."""
    batch = {"queue": "nights", "task": "report"}
    app.store.run(commands.declare_schedule("often", batch, b"[]", 7, every=3_600_000))
    call = app.task(name="report", queue="nights")(_double).bind(1).options(priority=3)
    app.schedule("nightly", call, cron="0 2 * * *", tz="Europe/Berlin")
    app.schedule("often", call, every="30m", offset="5m")
    clock.advance(3600)
    app.upkeep()


def _wait_for_a_job(app: Holdfast) -> None:
    """Run a job that waits for another one, which ends."""
    run = app.store.run
    app.pause("rate")
    put(app.store, "patient", "patience")
    put(app.store, "awaited", "haste")
    claim(app.store, "patience")
    run(commands.renew(WORKER, [], executors=[ONE], started=[Started(ONE, "patient", 1, 7, 5)]))
    run(commands.finish(ONE, [Finish("patient", 1, Blocked(("awaited",)))]))
    claim(app.store, "haste")
    run(commands.finish(ONE, [Finish("awaited", 1, Succeed(b"1"))]))


def _jobs(app: Holdfast) -> list[Any]:
    return list(app.list(limit=1000))


def _details(app: Holdfast) -> Iterator[Record]:
    for job in app.page(limit=1000, whole=True).rows:
        usage = None if job.unreadable else app.usage(job.id)
        yield details(job, usage, app.explain_many([job.id])[0])


def _pages(app: Holdfast) -> Iterator[Record]:
    for limit in (2, 1000):
        page = app.page(limit=limit)
        yield {"jobs": TABLES["Job"].records(page.rows), "cursor": page.cursor}


def _limit_details(app: Holdfast) -> Iterator[Record]:
    for limit in app.limits():
        for name in (limit.name, f"{limit.name}:ann"):
            yield limit_details(app, limit, name, 10).record


def _schedule_details(app: Holdfast) -> Iterator[Record]:
    for schedule in app.schedules():
        yield schedule_details(app, schedule, schedule.looked_at, 3)


def _status(app: Holdfast) -> Record:
    return status_record(app, server_summary(app))


def _logs(app: Holdfast) -> Iterator[Record]:
    log = app.logs("long")
    yield log_record("long", 1, log.data, log.left_out, attempts=log.attempts, failure=app.get("fails").failure)
    yield log_record("long", 1, log.data, log.left_out)


# How records are read. Those of the first are made by their table, of what a method of the client returns.
SOURCES: dict[str, Callable[[Holdfast], Iterable[Any]]] = {
    "Batch": lambda app: app.batches(),
    "CheckFinding": lambda app: app.check().findings,
    "DoctorFinding": lambda app: run_checks(probe_server(app.store)),
    "Event": lambda app: app.events(limit=1000),
    "Explanation": lambda app: app.explain_many([job.id for job in _jobs(app)]),
    "Failure": lambda app: app.failures(by="group"),
    "FailureDetails": lambda app: [app.failure(FINGERPRINT)],
    "Fingerprint": lambda app: app.failures(by="fingerprint"),
    "Job": _jobs,
    "Limit": lambda app: app.limits(),
    "MemoryUse": lambda app: app.memory(),
    "Node": lambda app: app.nodes(),
    "Operation": lambda app: app.operations(),
    "PastFinding": lambda app: app.check_history().findings,
    "Queue": lambda app: app.queues(),
    "Setting": lambda app: app.config("mail"),
    "Statistics": lambda app: [app.stats(), app.stats("quick", task="task"), app.stats("empty")],
    "StatisticsByQueue": lambda app: [app.stats("quick"), app.stats("empty")],
    "StatisticsByTask": lambda app: [app.stats("quick", task="task")],
    "StatisticsPoint": lambda app: app.stats_series("quick", resolution="minute"),
    "Subscription": lambda app: app.subscriptions(),
    "Upkeep": lambda app: [app.upkeep()],
    "Worker": lambda app: app.workers(),
}
MADE: dict[str, Callable[[Holdfast], Iterable[Record]]] = {
    "CountedState": lambda app: [row for each in app.operations() for row in counted_records(each.counts)],
    "JobDetails": _details,
    "JobPage": _pages,
    "LimitDetails": _limit_details,
    "Load": lambda app: [load_record(app, TABLES["QueueLoad"].records(app.load()), timedelta(minutes=1))],
    "Log": _logs,
    "Moment": lambda app: [Top(app).read()],
    "Plan": lambda app: [plan_record(app.plan()), plan_record(app.plan("mail", workers="+1", processes=4))],
    "Schedule": lambda app: [schedule_record(each, each.looked_at) for each in app.schedules()],
    "ScheduleDetails": _schedule_details,
    "Scope": lambda app: scope_records(app.scopes()),
    "Status": lambda app: [_status(app)],
    "Tag": lambda app: tag_records(app.tags()),
    "TrackedJob": lambda app: tracked_records(app.tracked()),
}

# What commands answer, in this order; {token} is that of the item that was claimed last.
ANSWERS = (
    ("EnqueuedJob", "enqueue double x=1 --id one -Q mail"),
    ("ForkedJob", "fork one --from-start --id two"),
    ("ChangedJob", "cancel two"),
    ("EndedJob", "wait two"),
    ("AddedNote", "note one hello"),
    ("AttachedFields", "attach one a=b"),
    ("MarkedJob", "tag one -t x"),
    ("JobCount", "count"),
    ("PausedQueue", "queues pause mail"),
    ("PausedQueue", "queues pause empty --create"),
    ("ForgottenQueue", "queues forget empty"),
    ("ChangedLimit", "limits set api 1 --per 1s --ttl 1h"),
    ("ReleasedSlot", "limits release gpu held"),
    ("RemovedLimit", "limits remove api"),
    ("Share", "limits share mail ann 3"),
    ("OpenedBatch", "batches open import"),
    ("ClosedBatch", "batches close import"),
    ("CancelledBatch", "batches cancel import --yes"),
    ("DeletedBatch", "batches delete import"),
    ("Schedule", "schedules add hourly double x=1 --every 1h"),
    ("TriggeredSchedule", "schedules trigger hourly"),
    ("RemovedSchedule", "schedules remove hourly"),
    ("RemovedSubscription", "subscriptions remove audit"),
    ("DrainedWorker", "workers drain node/live"),
    ("ForgottenWorker", "workers forget node/silent"),
    ("StoredItem", "items put letters hello"),
    ("ClaimedItem", "items claim letters"),
    ("RenewedItem", "items renew {token}"),
    ("EndedItem", "items complete {token}"),
    ("CleanedQueue", "items clean letters --protocol redis-work-queue"),
    ("QueueLength", "items length letters --protocol redis-work-queue"),
    ("SentCalls", "outbox send"),
    ("Case", "conformance --list enqueue"),
    ("CaseResult", "conformance enqueue/a-job"),
    ("CalledFunction", "call echo 3"),
    ("ChangedWebUser", "web users add ada --queues mail --no-password"),
    ("WebUser", "web users list"),
    ("ChangedWebUser", "web users remove ada"),
    ("AddedWebToken", "web tokens add ci --queues mail --scope metrics"),
    ("WebToken", "web tokens list"),
    ("RemovedWebToken", "web tokens remove ci"),
)
# What the REST API answers, where no command has these records.
REPLIES: tuple[tuple[str, str, str, Record | None], ...] = (
    ("Info", "GET", "/info", None),
    ("AppTask", "GET", "/tasks", None),
    ("StalledJobs", "GET", "/stalled", None),
    ("FailureWithExamples", "GET", f"/failures/{FINGERPRINT}", None),
    ("FailureTrend", "GET", f"/failures:trends?by=fingerprint&name={FINGERPRINT}", None),
    ("ConsistencyCheck", "POST", "/check", {"seconds": 1e-6}),
    ("ConsistencyCheck", "POST", "/check", {"seconds": 10}),
    ("MemoryMeasurement", "GET", "/memory?seconds=0.000001", None),
    ("MemoryMeasurement", "GET", "/memory?seconds=10", None),
    ("CheckHistory", "GET", "/check/history", None),
    ("ListedSchedule", "GET", "/schedules?history=5", None),
    ("Attention", "GET", "/attention", None),
    ("FailureTrend", "GET", f"/failures:trends?name={FINGERPRINT}", None),
    ("StatisticsOfQueue", "GET", "/stats/series/queues?queue=quick", None),
    ("Trend", "GET", "/stats/trends?queue=quick", None),
)
UNSEEN = {
    "OutboxCall.refused",
    "StatisticsByTask.failed",  # always null
    "Subscription.last_at",  # the next three need a worker
    "Subscription.last_job",
    "Subscription.worker",
}
# In the help of `why`, `failures`, `jobs` and `load`; or as words.
NAMED_ELSEWHERE = {"Explanation", "Fingerprint", "Job", "TopQueue", "WorkerCounts"}
BY_HAND = {
    "JobStack": {"id": "one", "stack": "Thread 1 ..."},  # needs a worker
    "WebServer": {"url": "http://127.0.0.1:8420/", "sign_in": ["token"]},  # of a command that serves until it is killed
}


@pytest.fixture(scope="module")
def samples(app: Holdfast, server_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Record]]:
    """Return records of every table."""
    found: dict[str, list[Record]] = defaultdict(list)

    def add(table: Table, record: Record) -> None:
        found[table.name].append(record)
        for field in table.fields:
            for inner, value in _nested(field.type, record[field.name]):
                add(inner, value)

    for name, sources in SOURCES.items():
        for each in TABLES[name].records(sources(app)):
            add(TABLES[name], each)
    for name, make in MADE.items():
        for each in make(app):
            add(TABLES[name], each)
    folder = tmp_path_factory.mktemp("records")
    more: list[tuple[str, Any]] = [*_answers(server_url, folder), *_of_servers(folder), *_of_web(app)]
    for name, record in [*more, *BY_HAND.items()]:
        add(TABLES[name], record)
    return found


def _nested(declared: Any, value: Any) -> Iterator[tuple[Table, Record]]:
    """Yield the records of other tables in a value."""
    if value is None:
        return
    if isinstance(declared, Table):
        yield declared, value
    elif isinstance(declared, Nested):
        kind = get_origin(declared.around(int))
        for each in value if kind is list else value.values() if kind is dict else [value]:
            yield from _nested(declared.inner, each)


def _answers(url: str, folder: Path) -> Iterator[tuple[str, Record]]:
    with pytest.MonkeyPatch.context() as patch:
        (folder / "own.lua").write_text("holdfast.register('echo', function(x) return x end)")
        patch.setenv("HOLDFAST_EXTEND", str(folder / "own.lua"))
        patch.setenv("HOLDFAST_OUTBOX", str(folder / "empty"))
        patch.setenv("HOLDFAST_WEB_AUTH", str(folder / "web.toml"))
        app = Holdfast(url, namespace=CLI)
        run = app.store.run
        run(commands.set_limit("gpu", 1))
        put(app.store, "held", "graphics", limits=("gpu",))
        claim(app.store, "graphics")
        run(commands.renew("node/live", [], executors=["node/live.0"], queues=["mail"]))
        run(commands.declare_subscription("audit", "{}", BATCH, 1, "now"))
        minute_ago = Store(app.address, clock=lambda: time.time_ns() // 1_000_000 - 60_000)
        minute_ago.run(commands.renew("node/silent", [], executors=["node/silent.0"], queues=["mail"]))
        token = ""
        for name, line in ANSWERS:
            for each in _command(f"--url {url} --namespace {CLI} --json {line.format(token=token)}"):
                token = each.get("token", token)
                yield name, each
        minute_ago.close()
        _delete_keys(app)


def _command(line: str) -> list[Record]:
    """Return the records that a command prints: one, an array, or one a line."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        run_command(line.split())
    text = out.getvalue()
    assert text, f"{line}: {err.getvalue()}"
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = [msgspec.json.decode(each) for each in text.splitlines()]
    return found if isinstance(found, list) else [found]


def _of_servers(folder: Path) -> Iterator[tuple[str, Record]]:
    """Yield records about an embedded server, and about calls that no server gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_HOME", str(folder / "home"))
        patch.setenv("HOLDFAST_OUTBOX", str(folder / "outbox"))
        patch.delenv("HOLDFAST_URL", raising=False)
        yield "Server", TABLES["Server"].record(embedded.status(folder / "home"))
        for name, line in (("StartedServer", "start"), ("Server", "status"), ("StoppedServer", "stop --force")):
            for each in _command(f"--json server {line}"):
                yield name, each
        app = Holdfast(f"unix://{folder}/nobody", when_unreachable="outbox")
        app.enqueue(app.task(name="double")(_double).bind(1))
        app.enqueue(app.task(name="triple")(_double).bind(1).options(delay="1h"))
        for each in outbox_records(app):
            yield "OutboxCall", each
        app.close()


def _of_web(app: Holdfast) -> Iterator[tuple[str, Record]]:
    """Yield what the REST API answers, to one who may do everything, and to one with rights on some queues."""
    double = app.tasks["double"]
    app.enqueue_many(double.bind(number).options(queue="more") for number in range(1000))  # a check has several parts
    with serve(Site(app, lambda _: LOCAL)) as web:
        for name, method, path, body in REPLIES:
            found = web.call(method, path, json=body)
            for each in found.get("items", [found]):
                yield name, each
    now = Store(app.address)  # from here on, by the clock of the machine
    about = '{"revision": 7, "started": 1, "pools": [{"processes": 2, "concurrency": 100}]}'
    now.run(commands.renew("node/live", [], queues=["more"], about=about))
    now.close()
    with serve(Site(app, lambda _: LOCAL)) as web:
        yield "WorkerSummary", web.call("GET", "/workers:summary")
    with serve(Site(app, lambda _: User("eve", "viewer", queues=("mail", "video-*")))) as web:
        yield "Info", web.call("GET", "/info")
    now = Store(app.address)  # last: by this clock, all else is long over
    now.run(commands.renew("node/here", [], queues=["more"], about='{"pools": [{"processes": 2, "concurrency": 100}]}'))
    now.close()
    with serve(Site(app, lambda _: LOCAL)) as web:
        yield "WorkerSummary", web.call("GET", "/workers:summary")


@pytest.mark.parametrize("name", sorted(TABLES))
def test_records_have_the_types_of_their_table(samples: dict[str, list[Record]], name: str) -> None:
    table = TABLES[name]
    assert samples[name], f"add records of {name}"
    for record in samples[name]:
        assert list(record) == list(table.help)
        typed = msgspec.convert(record, table.struct, strict=True)
        if name != "OutboxCall":  # whose times are text
            assert msgspec.json.decode(msgspec.json.encode(typed)) == msgspec.json.decode(msgspec.json.encode(record))


def test_each_field_has_a_value_somewhere(samples: dict[str, list[Record]]) -> None:
    """Of a field that is always null or empty, the type would not be tested."""
    empty = {
        f"{name}.{field.name}"
        for name, table in TABLES.items()
        for field in table.fields
        if all(record[field.name] in (None, [], {}, ()) for record in samples[name])
    }
    assert empty == UNSEEN


def test_all_types_have_a_schema() -> None:
    structs = [table.struct for table in TABLES.values()]
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    assert set(TABLES) <= set(components)
    for name, table in TABLES.items():
        assert components[name]["required"] == list(table.help)
        described = {field: each["description"] for field, each in components[name]["properties"].items()}
        assert described == table.help
    assert components["Job"]["properties"]["due_at"]["anyOf"][0] == {"type": "string", "format": "date-time"}


def test_help_names_the_fields_of_nested_records() -> None:
    """`--help` has no other list of them."""
    helps: dict[str, list[str]] = defaultdict(list)
    for table in TABLES.values():
        for field in table.fields:
            inner = field.type
            while isinstance(inner, Nested):
                inner = inner.inner
            if isinstance(inner, Table):
                helps[inner.name].append(field.help)
    for name in helps.keys() - NAMED_ELSEWHERE:
        assert any(set(TABLES[name].help) <= set(re.findall(r"\w+", help)) for help in helps[name]), name


def test_some_fields_of_a_table() -> None:
    table = TABLES["Job"].narrowed(["id", "due_at", "progress"])
    assert table.column_names == ["id", "due at", "progress"]
    assert msgspec.convert({"id": "a", "due_at": None, "progress": None}, table.struct).id == "a"  # type: ignore[attr-defined]
    (_, progress) = msgspec.json.schema_components([table.struct])
    assert "Progress" in progress


def test_nothing_of_the_command_line_is_imported() -> None:
    code = (
        "import importlib, pkgutil, sys, holdfast.records as records\n"
        "for each in pkgutil.iter_modules(records.__path__): importlib.import_module(f'holdfast.records.{each.name}')\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('click', 'rich') or name == 'holdfast.cli'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
