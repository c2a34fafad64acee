"""A library that behaves differently fails the cases: each of these bugs is found by a case that names the rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.conformance import Run, find_cases, open_connection
from holdfast.conformance.connection import Connection
from holdfast.store import Address
from holdfast.store.library import digest, library

BUGS = {
    "the backoff does not double": (
        "option(job, 'backoff') * 2 ^ math.min(used, 40)", "option(job, 'backoff')", "retry/backoff",
    ),
    "no lease is spared after an outage": ("MAX_SPARED = 3", "MAX_SPARED = 0", "leases/spared"),
    "a job that others wait for is deleted": (
        "if has(job.flags, AWAITED) and redis.call('EXISTS', key.dependents(id)) == 1 then return 'BLOCKED' end", "",
        "cancel/delete-awaited",
    ),
    "a key of a limit may be empty": (
        "'^[^:]+:(.*)$')\n    check_name", "'^[^:]+:(.+)$')\n    check_name", "names/limits",
    ),
    "a tag is added twice": ("if #wanted.tags == #names.tags then return 'SAME' end", "", "tags/tags"),
    "the default codec is another": (
        "CODEC_NUMBER[o.codec or 'json']", "CODEC_NUMBER[o.codec or 'raw']", "enqueue/defaults",
    ),
}  # fmt: skip


@pytest.fixture
def connection(address: Address) -> Iterator[Connection]:
    with open_connection(address) as made:
        yield made


def _planted(bug: str) -> str:
    """The library with a bug, under another name."""
    before, after, _ = BUGS[bug]
    assert library().count(before) == 1, f"{before!r} is not in the library once: follow the change"
    name = f"{list(BUGS).index(bug):012x}"
    return library().replace(before, after).replace(digest(), name)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_library_is_found(connection: Connection, bug: str) -> None:
    case = BUGS[bug][2]
    text = _planted(bug)
    planted, sound = Run(connection.send, text), Run(connection.send, library())
    try:
        (only,) = find_cases([case])
        assert sound.run(only).passed
        assert planted.run(only).status == "failed"
    finally:
        connection.send("FUNCTION", "DELETE", text.partition("\n")[0].partition("name=")[2])
        for each in (planted, sound):
            each.clean_up(connection.send)
