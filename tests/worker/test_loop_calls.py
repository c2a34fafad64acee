"""Calls that threads post to an event loop."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar, copy_context

import pytest

from holdfast.worker.runners.loop_calls import BATCH, MAX_WAITING, THROTTLE_PAUSE, LoopCalls

_whose: ContextVar[str] = ContextVar("whose", default="nobody")


def test_calls_are_made_by_the_loop_in_the_order_of_each_thread() -> None:
    made: list[tuple[int, int]] = []

    async def main() -> None:
        posted, own, last = LoopCalls(asyncio.get_running_loop()), threading.get_ident(), asyncio.Event()

        def make(thread: int, number: int) -> None:
            assert threading.get_ident() == own
            made.append((thread, number))
            if len(made) == 4000:
                last.set()

        def post(thread: int) -> None:
            for number in range(1000):
                posted.put(make, thread, number)

        threads = [threading.Thread(target=post, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(60):
            await last.wait()
        for thread in threads:
            thread.join()

    asyncio.run(main())

    for thread in range(4):
        assert [number for each, number in made if each == thread] == list(range(1000))


def test_calls_run_in_the_context_of_the_creator() -> None:
    seen: list[str] = []

    async def main() -> None:
        _whose.set("executor")
        posted = LoopCalls(asyncio.get_running_loop())
        job = copy_context()
        job.run(_whose.set, "job")
        job.run(posted.call, lambda: seen.append(_whose.get()))
        job.run(posted.put, lambda: seen.append(_whose.get()))
        await asyncio.sleep(0)
        posted.put(posted.call, lambda: seen.append(_whose.get()))
        await asyncio.sleep(0)

    asyncio.run(main())

    assert seen == ["executor"] * 3


def test_calls_posted_by_a_call_are_made_too() -> None:
    made: list[int] = []

    async def main() -> None:
        posted = LoopCalls(asyncio.get_running_loop())

        def make(number: int) -> None:
            made.append(number)
            if number < 3:
                posted.put(make, number + 1)

        posted.put(make, 1)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(main())

    assert made == [1, 2, 3]


def test_the_loop_goes_on_though_calls_are_posted_without_end() -> None:
    made: list[int] = []

    async def main() -> None:
        posted = LoopCalls(asyncio.get_running_loop())

        def make(number: int) -> None:
            made.append(number)
            if number < 1000:
                posted.put(make, number + 1)

        posted.put(make, 1)
        await asyncio.sleep(0)
        assert made == [1]

    asyncio.run(main())


def test_the_loop_makes_some_calls_at_once_and_then_looks_after_others() -> None:
    made: list[int] = []

    async def main() -> None:
        posted = LoopCalls(asyncio.get_running_loop())
        for number in range(2 * BATCH):
            posted.put(made.append, number)
        await asyncio.sleep(0)
        assert made == list(range(BATCH))
        await asyncio.sleep(0)

    asyncio.run(main())

    assert made == list(range(2 * BATCH))


def test_a_thread_far_ahead_of_the_loop_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("holdfast.worker.runners.loop_calls.time.sleep", waited.append)

    async def main() -> None:
        posted = LoopCalls(asyncio.get_running_loop())
        for _ in range(MAX_WAITING):
            posted.put_throttled(int)
        assert not waited
        posted.put_throttled(int)

    asyncio.run(main())

    assert waited == [THROTTLE_PAUSE]


def test_catch_up_makes_posted_calls_before_the_wake_up() -> None:
    made: list[tuple[str, str]] = []

    async def main() -> None:
        _whose.set("executor")
        loop = asyncio.get_running_loop()
        posted = LoopCalls(loop)
        loop.set_exception_handler(lambda *_: made.append(("error", _whose.get())))
        posted._is_woken = True  # by a thread that has not come to do it
        posted.put(lambda: 1 // 0)
        for number in range(2 * BATCH):
            posted.put(lambda number=number: made.append((str(number), _whose.get())))
        job = copy_context()
        job.run(_whose.set, "job")
        job.run(posted.catch_up)

    asyncio.run(main())

    assert made == [(word, "executor") for word in ("error", *map(str, range(2 * BATCH)))]


def test_the_next_post_wakes_the_loop_if_the_last_one_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        posted = LoopCalls(loop)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon_threadsafe", _no_memory)
            with pytest.raises(MemoryError):
                posted.put(made.append, "first")
        posted.put(made.append, "second")
        await asyncio.sleep(0)

    asyncio.run(main())

    assert made == ["first", "second"]


def _no_memory(*_: object, **__: object) -> None:
    raise MemoryError


def test_a_call_that_raises_is_reported_and_the_others_are_made() -> None:
    made, said = [], []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(type(context["exception"])))
        posted = LoopCalls(loop)
        for number in (1, 0, 2):
            posted.put(lambda number=number: made.append(1 // number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())

    assert (made, said) == ([1, 0], [ZeroDivisionError])


def test_a_call_of_the_loop_is_made_at_once_or_after_what_was_posted_before() -> None:
    made: list[str] = []

    async def main() -> None:
        posted = LoopCalls(asyncio.get_running_loop())
        posted.call(made.append, "now")
        assert made == ["now"]
        thread = threading.Thread(target=posted.put, args=(made.append, "posted"))
        thread.start()
        thread.join()
        posted.call(made.append, "after that")
        assert made == ["now"]
        await asyncio.sleep(0)

    asyncio.run(main())

    assert made == ["now", "posted", "after that"]
