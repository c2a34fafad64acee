"""The settings of a worker: name, type, default, bounds and help text, declared once.

The settings file, the options and environment variables of `holdfast work`, and `jobs.worker(...)` derive from the
two structs below. A field without `Meta` is set by the worker itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from holdfast.client.queue_patterns import NOT, check_entries, check_entry
from holdfast.constants import MAX_BATCH, MAX_LEASE, MIN_LEASE
from holdfast.errors import Invalid
from holdfast.names import MAX_NODE_NAME, check_name
from holdfast.units import CENTURY, SECOND, humanize_size, milliseconds, size_in_bytes

Order = Literal["strict", "round-robin", "weighted", "fair"]
WEIGHTED: tuple[Order, ...] = ("weighted", "fair")  # queues have weights
SyncRunner = Literal["fork", "spawn", "process", "thread"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

MAX_QUEUES = MAX_BATCH  # that one call takes
MAX_WEIGHT = 1000
MAX_COUNT = 1_000_000_000
MIN_MEMORY, MAX_MEMORY = 1 << 20, 1 << 49  # bytes


def _count(help: str, max: int = MAX_COUNT) -> Meta:
    return Meta(ge=1, le=max, description=help)


def _duration(help: str, min: int = 0, max: int = CENTURY) -> Meta:
    return Meta(ge=min, le=max, description=help, extra={"kind": "duration"})


def _size(help: str) -> Meta:
    return Meta(ge=MIN_MEMORY, le=MAX_MEMORY, description=help, extra={"kind": "size"})


def _default_queues() -> dict[str, int]:
    return {"default": 1}


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A group of executors that serve the same queues. `queues` maps names and patterns to weights."""

    name: Annotated[str, Meta(description="Name of the pool.", extra={"kind": "name"})] = "default"
    queues: Annotated[
        dict[str, int], Meta(description="Queues or patterns to serve, most urgent first: a,'b-*','!b-c'.")
    ] = msgspec.field(default_factory=_default_queues)
    order: Annotated[Order, Meta(description="How to choose between queues; weighted and fair: --queues a=5,b=1.")] = (
        "strict"
    )
    processes: Annotated[int, _count("Sync jobs to run at once, each in its own process.", 100_000)] = (
        os.cpu_count() or 2
    )
    concurrency: Annotated[int, _count("Async jobs and jobs in threads to run at once.", 100_000)] = 100
    runner: Annotated[SyncRunner, Meta(description="Runner of sync tasks that do not choose one.")] = "fork"
    in_directory: Annotated[
        bool, Meta(description="Run jobs that have their own process in the directory of their attempt.")
    ] = False
    executors: Annotated[
        int, _count("Processes that claim jobs; --processes and --concurrency apply to each.", 1000)
    ] = 1
    max_jobs: Annotated[int, _count("Exit after this number of jobs.")] | None = None  # of all executors together
    max_jobs_per_executor: Annotated[int, _count("Replace an executor after this number of jobs.")] | None = None
    max_age: Annotated[int, _duration("Replace an executor at this age; its running jobs finish.", SECOND)] | None = (
        None
    )
    max_memory: Annotated[int, _size("Replace an executor that uses more memory, its jobs included: 512M.")] | None = (
        None
    )


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a whole worker. Times are in milliseconds; `lease=None` leaves the lease to each queue."""

    app: Annotated[str, Meta(description="Module of the app, as `module` or `module:name`.")]
    lease: (
        Annotated[
            int,
            _duration(
                "Lease of claimed jobs, renewed while they run; default: as the queue is configured.",
                MIN_LEASE,
                MAX_LEASE,
            ),
        ]
        | None
    ) = None
    stop_within: Annotated[int, _duration("Time for running jobs to finish or yield at a shutdown.")] = 25_000
    burst: Annotated[bool, Meta(description="Exit when the queues are empty; jobs that are due later remain.")] = False
    reload: Annotated[bool, Meta(description="For development: reload the app when one of its files changes.")] = False
    node: Annotated[
        str,
        Meta(
            max_length=MAX_NODE_NAME,
            description="Name of this machine; default: its host name.",
            extra={"kind": "name"},
        ),
    ] = ""
    log_level: Annotated[LogLevel, Meta(description="Minimum level of log messages.")] = "INFO"
    allow_exec: Annotated[
        bool, Meta(description="Also run programs enqueued with --exec: anyone who can enqueue can run any program.")
    ] = False
    show_output: Annotated[bool, Meta(description="Also print the output of jobs, each line after the job's id.")] = (
        True
    )
    accept_data_loss: Annotated[
        bool, Meta(description="Work on a server that can lose jobs; see `holdfast doctor`.")
    ] = False
    pools: tuple[Pool, ...] = (Pool(),)
    directory: str = ""  # of the worker's own files

    @property
    def queues(self) -> list[str]:
        """The names and patterns of all pools, each once."""
        return list(dict.fromkeys(queue for pool in self.pools for queue in pool.queues))

    @property
    def executors(self) -> int:
        """The number of executors of all pools."""
        return sum(pool.executors for pool in self.pools)


class ExecutorStart(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of an executor's process: its name, its settings, and the descriptors that it inherits."""

    name: str
    parent: int
    settings: WorkerSettings
    pool: Pool
    control: int
    lease_clock: int


Kind = Literal["flag", "choice", "count", "duration", "size", "queues", "name", "text"]


class Setting(NamedTuple):
    """One setting as declared above."""

    name: str
    type: Any
    meta: Meta
    default: Any

    @property
    def kind(self) -> Kind:
        if self.meta.extra:
            kind: Kind = self.meta.extra["kind"]
            return kind
        if self.choices:
            return "choice"
        kinds: dict[Any, Kind] = {bool: "flag", int: "count", str: "text"}
        return kinds.get(self.type, "queues")

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def min(self) -> int:
        return int(self.meta.ge or 0)

    @property
    def max(self) -> int:
        return int(self.meta.le or 0)

    def read(self, value: Any, label: str) -> Any:
        """Check and convert a value; errors call it by its label, such as `--lease`.

        Raises:
            Invalid: the value has the wrong type or is out of bounds.
        """
        return _READERS[self.kind](self, value, label)


def _declared(struct: type[msgspec.Struct]) -> dict[str, Setting]:
    """Return the settings that a struct declares, by name."""
    found = {}
    for field in msgspec.structs.fields(struct):
        for hint in (field.type, *get_args(field.type)):  # the second for `... | None`
            if get_origin(hint) is Annotated:
                type, meta = get_args(hint)
                default = None if field.required else field.default
                if default is msgspec.NODEFAULT:
                    default = field.default_factory()
                found[field.name] = Setting(field.name, type, meta, default)
    return found


def read_queues(value: Any, label: str) -> dict[str, int]:
    """Read "a,b", "a=5,b=1", a list of such texts, or a table: names and weights, in the given order.

    A name may be a pattern. Exclusions, as in "video-*,!video-test", have the weight 0.
    """
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise Invalid(
                f'{label} is {value!r}; it must be names of queues: ["a", "b"], or with weights: {{a = 5, b = 1}}'
            )
        pairs = [_name_and_weight(part, label) for part in parts]
    names = [check_entry(name) for name, _ in pairs]
    if not names:
        raise Invalid(f"{label} is empty; name at least one queue")
    if double := next((name for name in names if names.count(name) > 1), None):
        raise Invalid(f"{label} names {double} twice")
    check_entries(names, label)
    return {name: _weight(name, weight) for name, weight in pairs}


def _name_and_weight(text: str, label: str) -> tuple[str, Any]:
    name, equals, weight = (part.strip() for part in text.partition("="))
    if equals and not weight.isdecimal():
        raise Invalid(f"{label} has {text!r}; a weight is a number: {name}=5")
    return name, int(weight) if equals else int(not name.startswith(NOT))


def _weight(name: str, value: Any) -> int:
    if name.startswith(NOT):
        if value != 0:
            raise Invalid(f"the weight of {name} is {value!r}; an exclusion has the weight 0, or none")
        return 0
    return _in_range(value, f"the weight of {name}", 1, MAX_WEIGHT)


def _in_range(value: Any, label: str, min: int, max: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not min <= value <= max:
        raise Invalid(f"{label} is {value!r}; it must be a whole number from {min} to {max}")
    return value


def _read_count(setting: Setting, value: Any, label: str) -> int:
    return _in_range(value, label, setting.min, setting.max)


def _read_duration(setting: Setting, value: Any, label: str) -> int:
    return milliseconds(value, what=label, minimum=setting.min, maximum=setting.max)


def _read_size(setting: Setting, value: Any, label: str) -> int:
    if not isinstance(value, str | int):
        raise Invalid(f'{label} is {value!r}; it must be a size: "512M", "2G", or a number of bytes')
    size = size_in_bytes(value, what=label, minimum=setting.min)
    if size > setting.max:
        raise Invalid(f"{label} is {value!r}; it must be at most {humanize_size(setting.max)}")
    return size


def _read_text(setting: Setting, value: Any, label: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{label} is {value!r}; it must be text")
    max_length = setting.meta.max_length
    if max_length is not None and len(value) > max_length:
        raise Invalid(f"{label} is {value!r}, which is too long; it must be up to {max_length} characters")
    return value


def _read_name(setting: Setting, value: Any, label: str) -> str:
    """The default may be an empty name, which is allowed then."""
    text = _read_text(setting, value, label)
    return check_name(text, label) if text or setting.default else ""


def _read_flag(_: Setting, value: Any, label: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{label} is {value!r}; it must be true or false")
    return value


def _read_choice(setting: Setting, value: Any, label: str) -> str:
    """Choices are matched without regard to case, as on the command line."""
    found = next((choice for choice in setting.choices if choice.lower() == str(value).lower()), None)
    if found is None:
        *others, last = setting.choices
        raise Invalid(f"{label} is {value!r}; it must be {', '.join(others)} or {last}")
    return found


_READERS: dict[Kind, Callable[[Setting, Any, str], Any]] = {
    "flag": _read_flag,
    "choice": _read_choice,
    "count": _read_count,
    "duration": _read_duration,
    "size": _read_size,
    "queues": lambda _, value, label: read_queues(value, label),
    "name": _read_name,
    "text": _read_text,
}

POOL_NAME = (_pool := _declared(Pool)).pop("name")
POOL_SETTINGS = _pool  # of each pool
WORKER_SETTINGS = _declared(WorkerSettings)  # of the whole worker
