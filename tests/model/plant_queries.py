"""Planted bugs in filters and operations; `plant.py` plants them."""

from __future__ import annotations

# Name, file, line, and what stands there instead.
BUGS = [
    (
        "filter: an ended job is found both as set aside and as not",
        "find",
        "math.min(time - expiry.SET_ASIDE, -1)",
        "time - expiry.SET_ASIDE",
    ),
    (
        "filter: a walk skips the job behind one that is gone",
        "find",
        "if member[1] == id and tonumber(member[2]) == tonumber(score) then first = first + 1 end",
        "first = first + 1",
    ),
    (
        "filter: a group is compared as it was given, not as it is stored",
        "filters",
        "truncate(check_text(value, 'group', 4096), INLINE)",
        "check_text(value, 'group', 4096)",
    ),
    ("filter: a worker has the jobs of all", "filters", "worker_of(run.executor) == worker", "true"),
    (
        "filter: times are counted in the index of jobs that wait",
        "find",
        "if not TIMED[state] or not (since or time) then",
        "if not (since or time) then",
    ),
    (
        "filter: newest first leaves out jobs that were set aside",
        "list_newest",
        "local below = table.remove(source.below)",
        "local below = source.rank ~= source.low and table.remove(source.below)",
    ),
    (
        "operation: a repeated step is done twice",
        "operations",
        " and tonumber(operation.steps) == args.step",
        "",
    ),
    (
        "operation: jobs are acted on twice in the millisecond of the start",
        "operations",
        "    if is_early then redis.call('SADD', key.acted(id), job) end\n",
        "",
    ),
    (
        "operation: the jobs set aside are met again after a step that ended behind them",
        "find",
        "if walk.window > 1 then segment.score, segment.id = '0', '-' end",
        "",
    ),
    (
        "operation: upkeep does not wait for the driver",
        "operations",
        "if due <= now or due > now + OPERATION_TIMEOUT then",
        "if true then",
    ),
    (
        "operation: upkeep continues one that was stopped",
        "operations",
        "    redis.call('ZREM', key.operating(), args.id)\n",
        "",
    ),
    (
        "operation: jobs that match only after the start are acted on",
        "operations",
        "  filters.end_at(query, tonumber(operation.started))\n",
        "",
    ),
    (
        "operation: the end that a filter gives is forgotten",
        "filters",
        "math.min(query.given['until'], time)",
        "time",
    ),
    (
        "operation: upkeep says that it can wait for long",
        "claim",
        "budget.steps > 0 and MAX_IDLE_WAIT or core.operations.PAUSE",
        "MAX_IDLE_WAIT",
    ),
]
