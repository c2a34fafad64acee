"""Planted bugs: does any test notice? Each is one line of the state machine, changed in a copy.

    python -m tests.plant             plants each bug in turn, and prints which tests caught it and how soon
    python -m tests.plant "fence"     only the bugs whose name has that word

It is its own pytest plugin too: `-p tests.plant` loads the copy that HOLDFAST_PLANT names in place of the real files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import functions

LUA = Path(functions.__file__).parent / "lua"
MODEL = "tests/test_model.py::test_random_commands_do_what_the_model_says[valkey]"
DIRECT = [f"tests/test_{name}.py" for name in ("lua_unique", "lua_settings", "lua_found", "repeats", "lua")]


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    line: str
    instead: str = ""


BUGS = [
    Bug(
        "a forgotten ZREM: a job stays in its old index",
        "move",
        "collect(leaving, key.index(job.queue, before), job.id)",
    ),
    Bug(
        "a timer outlives the run",
        "move",
        "if not timer and (before == 'scheduled' or before == 'running') then",
        "if not timer and before == 'scheduled' then",
    ),
    Bug("no fence: another executor may write", "lease", "if run.executor ~= executor then return nil end"),
    Bug(
        "no fence: an old attempt may write",
        "lease",
        "if job.state == 'running' and job.attempt == attempt then",
        "if job.state == 'running' then",
    ),
    Bug("a lease that ended stays with its executor", "lease", "collect(dropping, key.held(run.executor), job.id)"),
    Bug(
        "a released job goes to the end of the line",
        "lease",
        "else to_waiting(job, fields) end",
        "else job.arrival = reserve_arrivals(1) + 1; to_waiting(job, fields) end",
    ),
    Bug("one retry too many", "finish", "if job.retried >= job.retries then", "if job.retried > job.retries then"),
    Bug(
        "the wait before a retry is doubled once too often", "finish", "math.min(job.retried, 40)", "(job.retried + 1)"
    ),
    Bug(
        "a repeated claim gets new jobs",
        "claim",
        "if counter == args.counter then return repeat_claim(args, line) end",
    ),
    Bug(
        "a wish to cancel is forgotten at a release",
        "lease",
        "if has(job.flags, CANCELLING) then return conclude(job, 'cancelled', nil, fields) end",
    ),
    Bug("a clock that goes back is not noticed", "time", "elseif gap < 0 then clock_went_back() end", "end"),
    Bug("a lease is spared for ever", "lease", "spared + 1, length))", "spared, length))"),
    Bug("renew does not look at the attempt", "renew", "if holds ~= attempt then", "if not marks then"),
    Bug(
        "a crash is charged as a retry",
        "lease",
        "job.crashes, job.misses = job.crashes + 1, 0",
        "job.retried, job.misses = job.retried + 1, 0",
    ),
    Bug("a long checkpoint is left behind", "save", "redis.call('DEL', key.blob(letter, id))", "local _"),
    Bug(
        "a page begins with the last job of the one before",
        "list",
        "if member[1] == id and tonumber(member[2]) == tonumber(score) then first = first + 1 end",
    ),
    Bug(
        "a claim wakes nobody for what is left",
        "claim",
        "pass_on(open, args.shares and 1 or place, args.idle or args.shares)",
    ),
    Bug("waiters are not told", "lease", "tell_waiters(job, waiters)"),
    Bug(
        "a unique key is not freed when its job ends",
        "lease",
        "if has(job.flags, UNIQUE) then free_key(job, goes and 'qpk' or 'qp') end",
    ),
    Bug("a job that is tried again does not take its key again", "retry", "and take_key_again(job)", "and false"),
    Bug(
        "a key outlives the kept job that had it", "move", "free_key(load_job(id), 'k')", "free_key(load_job(id), 'p')"
    ),
    Bug(
        "the grace is forgotten at a renewal",
        "renew",
        "collect(entering, key.timers(), now + length, id)",
        "collect(entering, key.timers(), now + length - setting('grace'), id)",
    ),
    Bug("a token is ignored", "call", "if answer then return answer end"),
    Bug(
        "a job that is not kept stays in its index",
        "lease",
        "if goes then erase(job.id, job.queue, job.state)",
        "if goes then erase(job.id, job.queue, state)",
    ),
    Bug(
        "a job that runs once at most comes back after a crash",
        "lease",
        """if is_over(job, job.crashes, job.most_crashes) then return fail(job, 'crashed', waiters, fields) end
  come_back(job, 0, fields)""",
        """local over = job.crashes > job.most_crashes and not has(job.flags, CANCELLING)
  if over then return fail(job, 'crashed', waiters, fields) end
  come_back(job, 0, fields, true)""",
    ),
    Bug(
        "the lease of one queue is that of another",
        "claim",
        "args.lease or setting('lease', job.queue)",
        "args.lease or setting('lease', args.queues[1])",
    ),
]


def source_with(bug: Bug) -> str:
    """The library with a bug in it."""
    parts = {part: (LUA / f"{part}.lua").read_text("utf-8") for part in (*functions.PARTS, *functions.VERBS)}
    assert parts[bug.file].count(bug.line) == 1, f"{bug.file}.lua does not have this line once: {bug.line}"
    parts[bug.file] = parts[bug.file].replace(bug.line, bug.instead)
    return functions.join(parts)


def use(source: Path) -> None:
    """Have this process call a copy of the library."""
    text = source.read_text("utf-8")
    functions._source = lambda: text  # type: ignore[assignment]


def seconds_until_caught(source: Path, tests: Sequence[str]) -> tuple[str, float]:
    """Run tests with a bug planted until the first fails: returns its name, or '' if none does."""
    environment = {**os.environ, "HOLDFAST_PLANT": str(source), "HOLDFAST_MODEL_SHRINK": "0"}
    line = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "tests.plant", *tests]
    began = time.monotonic()
    run = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\S+)", run.stdout, re.MULTILINE)
    assert failed or run.returncode == 0, run.stdout + run.stderr
    return failed[1] if failed else "", time.monotonic() - began


def main(wanted: str = "") -> int:
    missed = 0
    print("| bug | model | first direct test |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "planted.lua"
        for bug in BUGS:
            if wanted in bug.name:
                source.write_text(source_with(bug), "utf-8")
                by_model, model_seconds = seconds_until_caught(source, [MODEL])
                by_test, test_seconds = seconds_until_caught(source, DIRECT)
                model = f"{model_seconds:.0f} s" if by_model else "-"
                direct = f"`{by_test}` {test_seconds:.0f} s" if by_test else "-"
                print(f"| {bug.name} | {model} | {direct} |", flush=True)
                missed += not (by_model or by_test)
    return missed


if "HOLDFAST_PLANT" in os.environ:
    use(Path(os.environ["HOLDFAST_PLANT"]))

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
