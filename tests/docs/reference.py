"""Writes docs/reference.md from signatures, docstrings and the comments beside fields: `make reference`.

Verbs come in pairs, `get` and `aget`; each pair is shown once. What users meet without importing it (a queue, a worker,
an item) is shown too.
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
from typing import Any, Union, get_origin

import holdfast
import holdfast.testing
import holdfast_pytest
from holdfast import errors
from holdfast.client import bulk, queues, schedules, timing, upkeep, workers
from holdfast.items import items
from holdfast.job import job, options
from holdfast.job.errors import JobCancelled, JobFailed
from holdfast.job.failure import Failure
from holdfast.store.commands import Event, HeldJob, Limit, Queue, Setting, Worker
from holdfast.task import program
from holdfast.worker import embedded

Item: type = vars(items)["Item"]
PATH = Path(__file__).parents[2] / "docs" / "reference.md"

HEAD = """\
# Reference

Everything that `from holdfast import ...` gives, what that returns, and `holdfast.testing`. Made by `make reference`
from the source: do not edit it here. The [guide](guide.md) shows how it is used, the [life of a job](lifecycle.md)
what happens then.

**Sync and async are equals.** `get`, `aget` stands for `jobs.get(...)` and `await jobs.aget(...)`, which take and
return the same.

**Durations** are a `timedelta`, a number of seconds, or a text such as `"1h30m"`, `"250ms"` or `"7d"`. Times that are
returned are aware datetimes, in UTC.
"""

GROUPS: list[tuple[str, str, list[Any]]] = [
    ("The app", "", [holdfast.Holdfast]),
    ("Tasks and options", "", [holdfast.Task, holdfast.BoundCall, options.Given, program.Ended]),
    ("Jobs", "", [holdfast.Job, job.Attempt, Failure, job.Note, job.Entry, job.Dependency, bulk.Kind,
     holdfast.Progress, holdfast.Log, holdfast.LogPart, holdfast.JobUsage]),
    ("Inside a task", "", [holdfast.current_job, holdfast.RunningJob]),
    ("How a task may end", "A task that returns has succeeded; one that raises has failed, and is tried again\n"
     "as its `retries` allow. It may also raise one of these.",
     [holdfast.Retry, holdfast.Fail, holdfast.Snooze, holdfast.Advance]),
    ("Schedules", "", [holdfast.cron, holdfast.every, schedules.Policy, schedules.Schedule, timing.Cron,
     timing.Every]),
    ("Items: four calls on raw bytes", "`jobs.items(queue)` gives them: no tasks, no worker.",
     [items.Items, Item, items.NoItem]),
    ("A worker inside a program", "", [embedded.EmbeddedWorker, embedded.Given]),
    ("Queues, workers, settings, events", "What the verbs of the app return.",
     [Queue, queues.Load, upkeep.Upkeep, Limit, Worker, HeldJob, workers.Node,
      Setting, Event]),
]  # fmt: skip
OPTIONS = {
    options.Given: """\
### Options

Of `@jobs.task(...)`, `task.options(...)`, `call.options(...)` and, as far as they make sense there, `items.put(...)`.
None stands for the default.
""",
    bulk.Kind: """\
### Jobs of a kind

Of `jobs.cancel_all(...)` and the like. All that is given must be so; something has to be.
""",
    schedules.Policy: """\
### Options of a schedule

Of `cron(...)`, `every(...)` and `jobs.schedule(...)`; more in [schedules](schedules.md).
""",
    embedded.Given: """\
### Settings of a worker inside a program

Of `jobs.worker(...)`; what they mean is said by `holdfast work --help` and in [worker](worker.md).
""",
}
TESTING = [getattr(holdfast.testing, name) for name in holdfast.testing.__all__]
ALIASES = {"Duration", "Steps"}  # left as they are, or taken away
WITH_CONSTRUCTOR = {holdfast.Holdfast, holdfast.Retry, holdfast.Fail, holdfast.Snooze, holdfast.Advance}
WRITTEN = {  # where the types in the source say less
    vars(holdfast.Holdfast)[
        "task"
    ]: "task(function, /) -> Task, or task(*, name: str | None = None, **options) -> a decorator",
}
HIDDEN = {  # what is public for other parts of Holdfast only
    holdfast.Holdfast: {"address", "tasks", "store", "async_store", "outage_policy"},
    holdfast.Task: {"app", "signature", "chosen", "origin"},
    holdfast.BoundCall: {"chosen", "outline", "variant"},
    holdfast.Job: {"app", "returns"},
    holdfast.Progress: {"base"},
    timing.Cron: {"after", "next"},
    items.Items: {"forget", "sign", "leave", "store", "async_store", "hold", "held", "seats", "ask"},
    Item: {"store", "async_store", "held", "was_renewed", "leave", "aleave"},
}


def write() -> str:
    """Return the whole document."""
    parts = [HEAD, _contents()]
    for title, words, things in GROUPS:
        parts += [f"## {title}\n", *([words + "\n"] if words else []), *map(_describe, things)]
    parts += [
        "## Errors\n",
        _errors(),
        _warning(),
        "## Testing: `holdfast.testing`\n",
        *map(_describe, TESTING),
        _fixtures(),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _contents() -> str:
    titles = [title for title, _, _ in GROUPS] + ["Errors", "Testing: `holdfast.testing`"]
    return "\n".join(f"- [{title}](#{_anchor(title)})" for title in titles) + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _describe(thing: Any) -> str:
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
    section = ""
    for names in _verbs(kind):
        if (now := _section(kind, names[0])) != section:
            section = now
            parts.append(f"*{section}*\n")
        parts.append(_method(kind, names))
    return "\n".join(parts)


def _hidden(kind: type, name: str) -> bool:
    return name.startswith("_") or name in HIDDEN.get(kind, ())


def _fields(kind: type) -> Iterator[str]:
    """The rows of a table of fields and properties."""
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
    """The fields that a class declares; if it declares none, what its constructor sets from its own parameters."""
    declared = {name: _unquoted(str(kept)) for name, kept in inspect.get_annotations(kind).items()}
    if declared or kind not in (holdfast.RunningJob, Item):
        return declared
    known = inspect.signature(kind).parameters
    found = re.findall(r"^        self\.([a-z]\w*)(?:: (.+?))? = ", inspect.getsource(vars(kind)["__init__"]), re.M)
    return {name: said or (str(known[name].annotation) if name in known else "") for name, said in found}


def _comments(kind: type) -> dict[str, str]:
    """What is said beside the fields of a class, and beside the one-line return of a property."""
    lines = inspect.getsource(kind).splitlines()
    beside = [re.match(r" +(?:self\.)?([a-z]\w*)\b[^#]*#\s+(.+)", line) for line in lines]
    said = {found[1]: found[2] for found in beside if found}
    for name, node in _declared(kind):  # one that is declared over several lines has it beside the last
        if node.end_lineno != node.lineno and (found := re.search(r"#\s+(.+)", lines[(node.end_lineno or 0) - 1])):
            said[name] = found[1]
    return {name: words[:1].upper() + words[1:] for name, words in said.items()}


def _declared(kind: type) -> list[tuple[str, ast.AnnAssign]]:
    """The fields of a class as they are written, with their lines in its source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    found = [node for node in getattr(body, "body", []) if isinstance(node, ast.AnnAssign)]
    return [(node.target.id, node) for node in found if isinstance(node.target, ast.Name)]


def _verbs(kind: type) -> Iterator[list[str]]:
    """The public methods of a class in the order of its source; those that are sync and async together."""
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
    """The comment under which a method stands in its class, such as `# Looking at jobs`."""
    before = re.split(rf"^    (?:(?:async )?def _?{name}\(|{name}, )", inspect.getsource(kind), maxsplit=1, flags=re.M)[
        0
    ]
    titles: list[str] = re.findall(r"^    # ([A-Z][\w ,]+)$", before, re.M)
    return titles[-1] if titles else ""


def _call(name: str, function: Callable[..., Any], *, returns: bool = True) -> str:
    """A call as one would write it, with the types of what it takes and gives."""
    module = vars(sys.modules[function.__module__])
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "_", "unknown")]
    shown = [_parameter(each, module) for each in parameters]
    for kind, mark in ((inspect.Parameter.POSITIONAL_ONLY, "/"), (inspect.Parameter.KEYWORD_ONLY, "*")):
        places = [place for place, each in enumerate(parameters) if each.kind is kind]
        if places and mark == "/":
            shown.insert(places[-1] + 1, "/")
        elif places and not any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
            shown.insert(places[0] + ("/" in shown), "*")
    result = _plain(str(signature.return_annotation), module)
    if inspect.isgeneratorfunction(getattr(function, "__wrapped__", None)) and result.startswith("Iterator["):
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
    """An annotation as text: without the steps of a verb and the names of modules, and with aliases written out."""
    annotation = re.sub(r"^Steps\[(.*)\]$", r"\1", annotation.strip("'\""))
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
    """A docstring as Markdown: examples are set apart, and what is raised becomes a list."""
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
    module, notes = vars(sys.modules[given.__module__]), _comments(given)
    rows = []
    for name, kept in _raw_annotations(given).items():
        rows.append(f"| `{name}` | {_type(kept.removesuffix(' | None'), module)} | {notes.get(name, '')} |")
    return "\n".join([OPTIONS[given], "| option | type | |", "|---|---|---|", *rows, ""])


def _fixtures() -> str:
    """The fixtures of the pytest plugin: what pytest makes of them hides the functions."""
    found = [node for node in ast.parse(inspect.getsource(holdfast_pytest)).body if isinstance(node, ast.FunctionDef)]
    rows = []
    for node in found:
        marks = " ".join(ast.unparse(each) for each in node.decorator_list)
        if marks.startswith("pytest.fixture"):
            scope = "session" if "session" in marks else "test"
            rows.append(f"| `{node.name}` | {scope} | {ast.get_docstring(node)} |")
    head = "### Fixtures of the pytest plugin\n\nSee [testing](testing.md).\n"
    return "\n".join([head, "| fixture | scope | |", "|---|---|---|", *rows, ""])


def _raw_annotations(kind: type) -> dict[str, str]:
    """Annotations as they are written: a TypedDict wraps them."""
    return {name: ast.unparse(node.annotation).replace("'", '"') for name, node in _declared(kind)}


def _warning() -> str:
    kind = errors.ResultTypeWarning
    return f"### `{kind.__name__}`\n\nA warning, and no error. {' '.join((inspect.getdoc(kind) or '').split())}\n"


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
    head = "Every error is a `HoldfastError`. `code` is the same in the store, on the command line and here.\n"
    return "\n".join([head, "| error | `code` | is a | |", "|---|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PATH.write_text(write())
    print(f"wrote {PATH}")
