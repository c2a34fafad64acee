"""The published runs of the model test, and what they found."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
import redis

from holdfast.store import commands
from holdfast.store.store import Address, Store
from tests.model import invariants, published
from tests.model.test_model import backend_server
from tests.support.new_job import NewJob


def new(id: str, *, after: tuple[str, ...] | None = None, keep: int | None = None) -> NewJob:
    return NewJob(id=id, payload=b"1", queue="q", task="t", after=after, keep=keep)


def test_the_total_on_the_page_is_the_sum_of_its_rows() -> None:
    text = published.PAGE.read_text("utf-8")
    runs = published.read(text)
    assert published.summary(runs) in text
    assert len(runs) == sum(line.startswith("| 2") for line in text.splitlines())


def test_a_run_is_appended_and_added_to_the_total(tmp_path: Path) -> None:
    page = Path(shutil.copy(published.PAGE, tmp_path))
    before = published.read(page.read_text("utf-8"))
    run = published.Run("2026-01-02", "0123456789", "small", 7, 12_345, 1.5, "none")
    published.append(run, page)
    text = page.read_text("utf-8")
    assert published.read(text) == [*before, run]
    assert f"**{sum(one.steps for one in before) + 12_345:,} steps** in {len(before) + 1} runs" in text


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (AssertionError("jobs | are `this`\nnot that"), "jobs are this"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("x" * 500), "x" * 120),
    ],
)
def test_an_error_fits_into_a_cell(error: BaseException, line: str) -> None:
    assert published.one_line(error) == line


def test_dependents_are_resolved_when_all_jobs_of_a_call_are_replaced() -> None:
    """Found by the model: the first replaced job had its dependents resolved while a later one was still among them."""
    with (
        backend_server("small") as url,
        closing(Store(Address.find(url, namespace="m"), clock=lambda: 1_700_000_000_000)) as store,
    ):
        store.run(commands.enqueue([new("a"), new("b")]))
        store.run(commands.enqueue([new("x", after=("a",)), new("c", after=("a",))]))
        store.run(commands.fail(["a"]))
        for _ in range(3):
            store.run(commands.upkeep())
        store.run(commands.enqueue([new("a"), new("b"), new("c")], on_exists="replace"))
        with redis.Redis.from_url(url) as client:
            assert client.zrange("hf:{m}:d:a", 0, -1) == [b"x"]
            assert client.hgetall("hf:{m}:resolving") == {}


def test_a_job_that_starts_again_after_its_dependency_was_deleted_stays_blocked() -> None:
    """Found by the model: an invariant expected the job among the dependents, which others of them still are."""
    now = 1_700_000_000_000
    with (
        backend_server("small") as url,
        closing(Store(Address.find(url, namespace="m"), clock=lambda: now)) as store,
        redis.Redis.from_url(url) as client,
    ):
        store.run(commands.enqueue([new("a", keep=1000)]))
        store.run(commands.enqueue([new(id, after=("a",)) for id in ("b", *"cdefghijklm")]))
        store.run(commands.cancel(["a"]))
        store.run(commands.cancel(["b"]))
        now += 5000
        store.run(commands.upkeep())
        assert client.hexists("hf:{m}:resolving", "a")
        assert not client.exists("hf:{m}:j:a")
        assert store.run(commands.retry(["b"])) == ["blocked"]
        invariants.check(client, "m")
        for _ in range(5):
            store.run(commands.upkeep())
        assert not client.exists("hf:{m}:d:a")
        invariants.check(client, "m")
