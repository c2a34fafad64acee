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
        "failures.clean_group(check_text(value, 'group', 4096))",
        "check_text(value, 'group', 4096)",
    ),
    (
        "filter: a set is used although jobs are listed under `other`",
        "find",
        "lacks_jobs = function() return failures.is_capped(kind) end,",
        "lacks_jobs = function() return false end,",
    ),
    (
        "filter: the size of a set is the number whatever else is asked for",
        "find",
        "return index.counts and covers(query, index) and #query.of_id == 0",
        "return index.counts and #query.of_id == 0",
    ),
    (
        "filter: the set of a task is used for jobs that have not failed",
        "find",
        "if kind == 't' then return states ~= nil and #states.list == 1 and states.set.failed end",
        "if kind == 't' then return true end",
    ),
    (
        "filter: newest first repeats the last job of a page of a set",
        "list_newest",
        "rank = math.min(rank, rank_of(set, score, id))",
        "rank = math.min(rank, rank_of(set, score, id) + 1)",
    ),
    ("filter: a fingerprint is not compared", "filters", "return own == fingerprint end,", "return true end,"),
    (
        "operation: workers act in their own name",
        "operations",
        "  caller = operation.who ~= '' and operation.who or nil\n",
        "",
    ),
    (
        "operation: those that run are forgotten, too",
        "operations",
        "if not redis.call('ZSCORE', key.operating(), id) then forget_operation(id) end",
        "forget_operation(id)",
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
