"""Generates docs/reference/ from signatures, docstrings and the comments next to fields: `make reference`.

A sync method and its async twin (`get`, `aget`) share one entry. Values that users receive without importing their
class (a queue, a worker, an item) are included.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Union, get_origin

import msgspec

import holdfast
import holdfast.testing
import holdfast_pytest
from holdfast import errors
from holdfast.client import (
    batches,
    events,
    filters,
    operations,
    queries,
    queues,
    schedules,
    statistics,
    subscriptions,
    tags,
    timing,
    transactions,
    upkeep,
    workers,
)
from holdfast.events.event import Marks
from holdfast.events.filter import EventFilter
from holdfast.items import Item, Items, NoItem
from holdfast.job import option_table, options, parts
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.job.explanation import Explanation, Reason
from holdfast.job.failure import Failure
from holdfast.job.failures import FailureDetails, FailureGroup
from holdfast.job.history import HistoryEntry
from holdfast.planning import forecasts, plans
from holdfast.redis_work_queue.shared_item import SharedItem
from holdfast.redis_work_queue.shared_items import SharedItems, StoredItem
from holdfast.store.commands import HeldJob, LimitKey, LimitStatus, Queue, Setting, Worker
from holdfast.task import program
from holdfast.worker import embedded

ENDINGS = """\
## How a task ends

A task that returns has succeeded. A task that raises has failed and is retried while it has `retries` left. It may also
raise one of these:
"""
FOLDER = Path(__file__).parents[2] / "docs" / "reference"

HEAD = """\
# Reference

Look up every name that `from holdfast import ...` and `holdfast.testing` provide, with the values that they return.
`make reference` generates these pages from the source; edit the docstrings, not the pages. The [guide](../guide.md)
shows how the parts work together, and [life of a job](../lifecycle.md) explains what happens to a job.

**Sync and async are equal.** An entry such as `get`, `aget` describes both `jobs.get(...)` and `await jobs.aget(...)`:
they take the same arguments and return the same value.

**Durations** are a `timedelta`, a number of seconds, or a string such as `"1h30m"`, `"250ms"` or `"7d"`. Returned times
are aware datetimes in UTC.

| page | contents |
|---|---|
"""


class Page(NamedTuple):
    """One generated page: methods of the app defined in `modules`, then classes and functions."""

    title: str
    contents: str
    things: list[Any]
    modules: tuple[str, ...] = ()  # of holdfast.client; methods of other modules are shown with the app
    intro: str = ""


PAGES = {
    "app": Page("The app", "`Holdfast`: declare tasks, enqueue, connect", [holdfast.Holdfast]),
    "tasks": Page("Tasks and options", "`Task`, `BoundCall`, every option of a job, `Retries`",
     [holdfast.Task, holdfast.BoundCall, options.JobOptions, holdfast.Retries, program.ProgramResult]),
    "jobs": Page("Jobs", "find jobs and failures, tags, logs, cancel, retry, delete, move them, one by one or in bulk",
     [filters.JobFilter, queries.Page, operations.Operation, FailureGroup, FailureDetails, tags.TrackedJobs],
     ("jobs", "explain", "queries", "operations", "failures", "tags", "running_jobs", "logs", "results")),
    "job": Page("The `Job` value", "fields and methods of a job and the values in it",
     [holdfast.Job, Explanation, Reason, parts.Attempt, Failure, parts.Note, HistoryEntry, parts.Dependency,
      parts.Parked, parts.EnqueuedAs, holdfast.Progress, holdfast.Log, holdfast.LogPart, holdfast.JobUsage]),
    "running": Page("Inside a task", "`current_job()`: checkpoints, progress, loops, steps; exceptions that end a task",
     [holdfast.current_job, holdfast.RunningJob, ENDINGS, holdfast.Retry, holdfast.Fail, holdfast.Snooze,
      holdfast.Advance]),
    "queues": Page("Queues, limits, settings", "list, pause and configure queues; limits and fair shares; load",
     [Queue, queues.Load, upkeep.Upkeep, holdfast.Limit, LimitStatus, LimitKey, Setting],
     ("queues", "limits", "upkeep", "config")),
    "statistics": Page("Statistics", "waits and runs by queue, task and day; numbers per minute and hour",
     [statistics.Statistics, statistics.Times, statistics.Bucket, statistics.Quantile, statistics.Point],
     ("statistics",)),
    "plans": Page("Plans", "when the backlog of each queue will be gone, and what more workers would do",
     [plans.Plan, plans.QueuePlan, forecasts.Forecast]),
    "workers": Page("Workers", "list and drain workers; run a worker inside a program",
     [Worker, HeldJob, workers.Node, embedded.EmbeddedWorker, embedded.EmbeddedSettings], ("workers",)),
    "schedules": Page("Schedules", "`cron`, `every`, and the methods that manage schedules",
     [holdfast.cron, holdfast.every, timing.SchedulePolicy, schedules.Schedule, timing.Cron, timing.Every],
     ("schedules", "timing")),
    "events": Page("Events", "read and follow events; subscriptions of handlers",
     [holdfast.Event, Marks, events.EventConditions, subscriptions.Subscription, EventFilter],
     ("events", "subscriptions")),
    "batches": Page("Batches", "`Batch`: named groups of jobs, with progress, wait, cancel, and jobs at their end",
     [holdfast.Batch, holdfast.BatchStatus, batches.BatchCallback], ("batches",)),
    "transactions": Page("Transactions and own Lua", "enqueue in a transaction of your own; functions in the server",
     [transactions.QueuedJobs], ("transactions", "extension")),
    "items": Page("Items", "four calls on raw bytes, without tasks or workers", [Items, Item, NoItem],
     intro="`jobs.items(queue)` returns an `Items`: four calls on raw bytes, without tasks or workers."),
    "shared_items": Page("Shared items", "a queue that other programs use by the protocol of redis-work-queue",
     [SharedItems, SharedItem, StoredItem],
     intro='`jobs.items(queue, protocol="redis-work-queue", prefix="p")` returns a `SharedItems`: see '
     "[redis-work-queue](../redis-work-queue.md)."),
    "errors": Page("Errors", "every exception, its code and its base class", []),
    "testing": Page("Testing", "`holdfast.testing` and the fixtures of the pytest plugin",
     [getattr(holdfast.testing, name) for name in holdfast.testing.__all__]),
}  # fmt: skip
OPTIONS = {
    options.JobOptions: """\
### Options

The options of `@jobs.task(...)`, `task.options(...)`, `call.options(...)` and, where they apply, `items.put(...)`. None
means the default.
""",
    filters.JobFilter: """\
### Filters

The filters of `jobs.list(...)`, `rows`, `page`, `count`, `export` and the methods that act on all matching jobs. A job
must match all of them; [queries](../queries.md) explains them.

The methods that act (`cancel_all` ...) require one. They also take `progress`, a function that is called with the
number of jobs that each step has looked at, and `wait=False`, which returns the operation at once.
""",
    timing.SchedulePolicy: """\
### Options of a schedule

The options of `cron(...)`, `every(...)` and `jobs.schedule(...)`; [schedules](../schedules.md) explains them.
""",
    events.EventConditions: """\
### Conditions

The conditions of `jobs.subscribe(...)`, `jobs.events(...)` and, except for `types`, of `jobs.on(...)`. All of them must
be true.
""",
    embedded.EmbeddedSettings: """\
### Settings of an embedded worker

The settings of `jobs.worker(...)`; `holdfast work --help` and [the worker](../worker.md) explain them.
""",
}
ALIASES = {"Duration", "Pages", "Steps"}  # shown by name, not written out
WITH_CONSTRUCTOR = {
    holdfast.Holdfast,
    holdfast.Retries,
    holdfast.Retry,
    holdfast.Fail,
    holdfast.Snooze,
    holdfast.Advance,
}
WRITTEN = {  # calls whose annotations are less helpful than a written signature
    vars(holdfast.Holdfast)[
        "task"
    ]: "task(function, /) -> Task, or task(*, name: str | None = None, **options) -> a decorator",
}
HIDDEN = {  # attributes that only other parts of Holdfast use
    holdfast.Holdfast: {
        "address",
        "tasks",
        "store",
        "async_store",
        "outage_policy",
        "shared_queues",
        "extension",
        "loop_inbox",
    },
    holdfast.Task: {"app", "signature", "effective_options", "origin"},
    holdfast.BoundCall: {"effective_options", "job_template", "variant"},
    holdfast.Job: {"app", "returns"},
    holdfast.Progress: {"base"},
    holdfast.Retries: {"policy", "of"},
    timing.Cron: {"after", "next"},
    SharedItems: {"forget", "store", "async_store", "renew_all", "release_all"},
    SharedItem: {"store", "async_store", "held", "was_renewed", "leave", "aleave"},
    holdfast.Batch: {"store", "async_store"},
    transactions.QueuedJobs: {"store", "async_store"},
    Items: {"forget", "store", "async_store", "request_claim"},
    Item: {"store", "async_store", "held", "created", "was_renewed", "was_ended", "leave", "aleave"},
}


def write() -> dict[str, str]:
    """Return the text of every page by its file name."""
    index = HEAD + "".join(f"| [{page.title}]({name}.md) | {page.contents} |\n" for name, page in PAGES.items())
    return {"README.md": index, **{f"{name}.md": _page(name, page) for name, page in PAGES.items()}}


def _page(name: str, page: Page) -> str:
    parts = [
        f"# {page.title}\n",
        "[All pages of the reference](README.md)\n",
        *([page.intro + "\n"] if page.intro else []),
    ]
    if page.modules:
        methods = [names for names in _methods(holdfast.Holdfast) if _page_of(names[0]) == name]
        parts += ["## Methods of the app\n", *_entries(holdfast.Holdfast, methods)]
        parts += ["## Values and options\n"] if page.things else []
    parts += [_describe(thing) for thing in page.things]
    if name == "errors":
        parts += [_errors(), _warning()]
    if name == "testing":
        parts.append(_fixtures())
    return "\n".join(parts).rstrip() + "\n"


def _page_of(method: str) -> str:
    """Return the page that shows a method of the app: the page of the module that defines it."""
    module = vars(holdfast.Holdfast)[method].__module__.removeprefix("holdfast.client.")
    return next((name for name, page in PAGES.items() if module in page.modules), "app")


def _describe(thing: Any) -> str:
    if isinstance(thing, str):
        return thing
    if thing in OPTIONS:
        return _options(thing)
    return _class(thing) if isinstance(thing, type) else _function(thing)


def _function(function: Callable[..., Any]) -> str:
    return f"### `{function.__name__}`\n\n`{_call(function.__name__, function)}`\n\n{_prose(function)}\n"


def _class(kind: type) -> str:
    parts = [f"### `{kind.__name__}`\n", _prose(kind) + "\n"]
    if kind in WITH_CONSTRUCTOR:
        parts.append(f"`{_call(kind.__name__, vars(kind)['__init__'], returns=False)}`\n")
    if not issubclass(kind, BaseException) and (fields := list(_fields(kind))):
        parts.append("\n".join(["| field | type | |", "|---|---|---|", *fields]) + "\n")
    methods = list(_methods(kind))
    if kind is holdfast.Holdfast:
        methods = [names for names in methods if _page_of(names[0]) == "app"]
    return "\n".join([*parts, *_entries(kind, methods)])


def _entries(kind: type, methods: list[list[str]]) -> Iterator[str]:
    """Describe methods of a class, below the headings under which its source groups them."""
    section = ""
    for names in methods:
        if (now := _section(kind, names[0])) != section:
            section = now
            yield f"*{section}*\n"
        yield _method(kind, names)


def _hidden(kind: type, name: str) -> bool:
    return name.startswith("_") or name in HIDDEN.get(kind, ())


def _fields(kind: type) -> Iterator[str]:
    """Yield the rows of a table of fields and properties; those of a struct that this one extends come first."""
    for base in kind.__bases__:
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            yield from _fields(base)
    notes = _comments(kind)
    module = vars(sys.modules[kind.__module__])
    for name, kept in _annotations(kind).items():
        if not _hidden(kind, name):
            yield f"| `{name}` | {_type(kept, module)} | {notes.get(name, '')} |"
    for name, value in vars(kind).items():
        if isinstance(value, property) and value.fget and not _hidden(kind, name):
            words = " ".join((inspect.getdoc(value) or "").split())
            yield f"| `{name}` | {_type(value.fget.__annotations__['return'], module)} | {notes.get(name, words)} |"


def _annotations(kind: type) -> dict[str, str]:
    """Return the declared fields of a class, or the attributes that its constructor sets if it declares none."""
    declared = {name: _unquoted(str(kept)) for name, kept in inspect.get_annotations(kind).items()}
    if declared or kind not in (holdfast.RunningJob, Item):
        return declared
    known = inspect.signature(kind).parameters
    found = re.findall(r"^        self\.([a-z]\w*)(?:: (.+?))? = ", inspect.getsource(vars(kind)["__init__"]), re.M)
    return {name: said or (str(known[name].annotation) if name in known else "") for name, said in found}


def _comments(kind: type) -> dict[str, str]:
    """Return the comments next to the fields of a class and next to one-line properties."""
    lines = inspect.getsource(kind).splitlines()
    beside = [re.match(r" +(?:self\.)?([a-z]\w*)\b[^#]*#\s+(.+)", line) for line in lines]
    said = {found[1]: found[2] for found in beside if found}
    for name, node in _declared(kind):  # a field over several lines has its comment on the last
        if node.end_lineno != node.lineno and (found := re.search(r"#\s+(.+)", lines[(node.end_lineno or 0) - 1])):
            said[name] = found[1]
    return {name: words[:1].upper() + words[1:] for name, words in said.items()}


def _declared(kind: type) -> list[tuple[str, ast.AnnAssign]]:
    """Return the annotated fields of a class with their nodes in its source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    found = [node for node in getattr(body, "body", []) if isinstance(node, ast.AnnAssign)]
    return [(node.target.id, node) for node in found if isinstance(node.target, ast.Name)]


def _methods(kind: type) -> Iterator[list[str]]:
    """Yield the public methods of a class in the order of its source, each with its async twin."""
    names = [name for name, value in vars(kind).items() if inspect.isfunction(value) and not _hidden(kind, name)]
    for name in names:
        if name.startswith("a") and name[1:] in names:
            continue
        yield [name, f"a{name}"] if f"a{name}" in names else [name]


def _method(kind: type, names: list[str]) -> str:
    function = vars(kind)[names[0]]
    title = ", ".join(f"`{name}`" for name in names)
    call = WRITTEN.get(function) or _call(names[0], function)
    return f"#### {title}\n\n`{call}`\n\n{_prose(function)}\n"


def _section(kind: type, name: str) -> str:
    """Return the comment that heads a group of methods in the source, such as `# Looking at jobs`."""
    before = re.split(rf"^    (?:(?:async )?def _?{name}\(|{name}, )", inspect.getsource(kind), maxsplit=1, flags=re.M)[
        0
    ]
    titles: list[str] = re.findall(r"^    # ([A-Z][\w ,]+)$", before, re.M)
    return titles[-1] if titles else ""


def _call(name: str, function: Callable[..., Any], *, returns: bool = True) -> str:
    """Return a signature with the types of its parameters and its result."""
    module = vars(sys.modules[function.__module__])
    signature = inspect.signature(function)
    parameters = [
        each for each in signature.parameters.values() if each.name not in ("self", "_", "unknown", "unknown_named")
    ]
    shown = [_parameter(each, module) for each in parameters]
    for kind, mark in ((inspect.Parameter.POSITIONAL_ONLY, "/"), (inspect.Parameter.KEYWORD_ONLY, "*")):
        places = [place for place, each in enumerate(parameters) if each.kind is kind]
        if places and mark == "/":
            shown.insert(places[-1] + 1, "/")
        elif places and not any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
            shown.insert(places[0] + ("/" in shown), "*")
    result = _plain(str(signature.return_annotation), module)
    is_generator = inspect.isgeneratorfunction(getattr(function, "__wrapped__", None))
    if is_generator and str(signature.return_annotation).strip("'").startswith("Iterator["):
        result = result.replace("Iterator[", "AbstractContextManager[", 1)
    return f"{name}({', '.join(shown)})" + (f" -> {result}" if returns else "")


def _parameter(each: inspect.Parameter, module: dict[str, Any]) -> str:
    stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    kind = _plain(str(each.annotation), module)
    if kind in ("P.args", "P.kwargs") or kind.startswith("Unpack["):
        return stars + ("options" if each.name == "given" else each.name)
    default = "" if each.default is each.empty else f" = {each.default!r}"
    return f"{stars}{each.name}: {kind}{default}"


def _plain(annotation: str, module: dict[str, Any]) -> str:
    """Return an annotation as text: `Steps` and module names removed, aliases written out."""
    annotation = re.sub(r"^Steps\[(.*)\]$", r"\1", annotation.strip("'\""))
    annotation = re.sub(r"^Pages\[(.*)\]$", r"Iterator[\1]", annotation)
    annotation = re.sub(r"\b(?:embedded|commands)\.", "", annotation)
    return re.sub(r"\b[A-Za-z_]\w*\b(?!\.)", lambda name: _written_out(name[0], module), annotation)


def _written_out(name: str, module: dict[str, Any]) -> str:
    value = module.get(name)
    is_alias = isinstance(value, types.GenericAlias | types.UnionType) or get_origin(value) is Union
    if name in ALIASES or not (is_alias or str(value).startswith("typing.Literal[")):
        return name
    text = re.sub(r"\b(?:typing|datetime|collections\.abc|holdfast(?:\.\w+)*)\.", "", str(value))
    return re.sub(r"Optional\[(Job\[Any\])\]", r"\1 | None", _unquoted(text))


def _unquoted(text: str) -> str:
    return text if "Literal" in text else re.sub(r"ForwardRef\('(.*?)'\)|'(\w+)'", r"\1\2", text)


def _type(annotation: str, module: dict[str, Any]) -> str:
    text = _plain(annotation, module).replace("|", "\\|")
    return f"`{text}`" if text and text != "<class 'inspect._empty'>" else ""


def _prose(thing: Any) -> str:
    """Return a docstring as Markdown: examples become code blocks, `Raises:` becomes a list."""
    text = inspect.getdoc(thing) or ""
    assert text, f"{thing} has no docstring"
    return "\n\n".join(_paragraph(part) for part in text.split("\n\n"))


def _paragraph(part: str) -> str:
    if part.startswith("Raises:\n"):
        raised = re.findall(r"^ {4}(\w[\w, ]*): (.*(?:\n {5,}.*)*)", part, re.M)
        return "Raises\n\n" + "\n".join(f"- `{'`, `'.join(n.split(', '))}`: {' '.join(w.split())}" for n, w in raised)
    return f"```py\n{textwrap.dedent(part)}\n```" if _is_code(part) else part


def _is_code(part: str) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(part))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.FunctionDef | ast.With | ast.Assert) for node in ast.walk(tree))


def _options(given: type) -> str:
    module = vars(sys.modules[given.__module__])
    notes = _help_of_options() if given is options.JobOptions else _comments(given)
    rows = []
    for name, kept in _raw_annotations(given).items():
        rows.append(f"| `{name}` | {_type(kept.removesuffix(' | None'), module)} | {notes.get(name, '')} |")
    return "\n".join([OPTIONS[given], "| option | type | |", "|---|---|---|", *rows, ""])


def _help_of_options() -> dict[str, str]:
    return {
        option.name: f"{option.help}{f' Default: {option.default}.' if option.default else ''}"
        for option in option_table.OPTIONS
    }


def _fixtures() -> str:
    """Return the fixtures of the pytest plugin, read from its source because pytest wraps the functions."""
    found = [node for node in ast.parse(inspect.getsource(holdfast_pytest)).body if isinstance(node, ast.FunctionDef)]
    rows = []
    for node in found:
        marks = " ".join(ast.unparse(each) for each in node.decorator_list)
        if marks.startswith("pytest.fixture"):
            scope = "session" if "session" in marks else "test"
            rows.append(f"| `{node.name}` | {scope} | {ast.get_docstring(node)} |")
    head = "### Fixtures of the pytest plugin\n\n[Testing your tasks](../testing.md) shows them in use.\n"
    return "\n".join([head, "| fixture | scope | |", "|---|---|---|", *rows, ""])


def _raw_annotations(kind: type) -> dict[str, str]:
    """Return annotations as written in the source; a TypedDict wraps them at run time."""
    return {name: ast.unparse(node.annotation).replace("'", '"') for name, node in _declared(kind)}


def _warning() -> str:
    kind = errors.ResultTypeWarning
    return f"### `{kind.__name__}`\n\nA warning, not an error. {' '.join((inspect.getdoc(kind) or '').split())}\n"


def _errors() -> str:
    tree = textwrap.dedent((errors.__doc__ or "").split("\n\n")[1])
    rows = []
    for kind in (*vars(errors).values(), JobFailed, JobCancelled):
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError):
            words = re.search(rf"─ {kind.__name__} +(?:[A-Z]+ +)?(.*)", tree)
            shown = words[1] if words else " ".join((inspect.getdoc(kind) or "").split())
            doc = kind.__dict__.get("__doc__")
            more = f". {' '.join(doc.split())}" if words and doc else ""
            public = "" if kind.__name__ in holdfast.__all__ else " (in `holdfast.errors`)"
            base = next(each.__name__ for each in kind.__bases__)
            rows.append(
                f"| `{kind.__name__}`{public} | `{kind.code}` | `{base}` | {shown[:1].upper()}{shown[1:]}{more} |"
            )
    head = "Every error is a `HoldfastError`. Its `code` is the same in the store, on the command line and in Python.\n"
    return "\n".join([head, "| error | `code` | is a | |", "|---|---|---|---|", *rows, ""])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in write().items():
        (FOLDER / name).write_text(text)
    print(f"wrote {FOLDER}")
