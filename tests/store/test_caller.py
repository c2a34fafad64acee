"""Who calls: the user of the process, or who a program acts for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from holdfast import Holdfast, Invalid
from holdfast.constants import MAX_CALLER
from holdfast.store import acting_as
from holdfast.store.caller import caller_name


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def _who(app: Holdfast) -> list[str]:
    """Return who caused each event, in order."""
    return [event.who for event in app.events()]


def test_calls_inside_the_block_name_whom_it_acts_for(app: Holdfast) -> None:
    me = caller_name()
    app.pause("mail")
    with acting_as("ada@example.org"):
        app.resume("mail")
        with acting_as("grace"):
            app.pause("mail")
        assert caller_name() == "ada@example.org"
        app.resume("mail")
    app.pause("mail")
    assert _who(app) == [me, "ada@example.org", "grace", "ada@example.org", me]


def test_an_error_in_the_block_ends_it() -> None:
    me = caller_name()
    with pytest.raises(ZeroDivisionError), acting_as("ada"):
        _ = 1 / 0
    assert caller_name() == me


def test_concurrent_tasks_do_not_mix(app: Holdfast) -> None:
    """Each switches to the other between two of its calls."""

    async def act(name: str, barrier: asyncio.Barrier) -> None:
        with acting_as(name):
            for _ in range(3):
                await barrier.wait()
                await app.apause(name)
                await barrier.wait()
                await app.aresume(name)

    async def both() -> None:
        barrier = asyncio.Barrier(2)
        async with asyncio.TaskGroup() as group:
            group.create_task(act("ada", barrier))
            group.create_task(act("grace", barrier))
        await app.apause("other")
        await app.aclose()

    me = caller_name()
    asyncio.run(both())
    found = [(event.who, event.jobs[0]) for event in app.events()]
    assert sorted(found) == sorted([("ada", "ada")] * 6 + [("grace", "grace")] * 6 + [(me, "other")])


def test_tasks_and_threads_started_inside_act_for_the_same_user(app: Holdfast) -> None:
    async def start() -> None:
        with acting_as("ada"):
            task = asyncio.create_task(app.apause("one"))
            thread = asyncio.create_task(asyncio.to_thread(app.pause, "two"))
        await task
        await thread
        await app.aclose()

    asyncio.run(start())
    with acting_as("ada"):
        context = copy_context()
    thread = threading.Thread(target=context.run, args=(app.pause, "three"))
    thread.start()
    thread.join()
    assert _who(app) == ["ada"] * 3


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("Ada Lovelace", "Ada-Lovelace"),
        ("ada\n@example.org", "ada-@example.org"),
        ("node/worker.0", "node-worker.0"),
        ("Žofie", "-ofie"),
        ("a" * 100, "a" * MAX_CALLER),
    ],
)
def test_names_have_only_characters_that_events_have(app: Holdfast, given: str, named: str) -> None:
    with acting_as(given):
        assert caller_name() == named
        app.pause("mail")
    assert _who(app) == [named]


def test_somebody_without_a_name_cannot_act() -> None:
    with pytest.raises(Invalid, match="expected the name of a user, got ''"), acting_as(""):
        pass
