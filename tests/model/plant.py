"""Planted bugs: does a test fail for each? A bug is one changed line in a copy of the Lua library.

    python -m tests.model.plant             plant one bug after the other, and print which tests fail, and how soon
    python -m tests.model.plant "fence"     only the bugs whose name has that word
    python -m tests.model.plant "" model    only by the model

It is also a pytest plugin: `-p tests.model.plant` loads the copy that HOLDFAST_PLANT names.
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

from holdfast.store import library
from tests.model import plant_queries

LUA = Path(library.__file__).parent / "lua"
MODEL = [
    f"tests/model/test_model.py::test_random_commands_have_the_effect_that_the_model_predicts[{backend}]"
    for backend in ("small", "valkey")
]
DIRECT = [
    f"tests/{name}.py"
    for name in (
        "client/test_duplicates",
        "client/test_config",
        "store/lua/test_bugs_found_by_model",
        "store/lua/test_repeated_calls",
        "store/lua/test_state_machine",
        "store/lua/test_backoff",
        "store/lua/test_budgets",
        "store/lua/test_settings",
        "store/lua/test_unique_keys",
        "store/lua/test_dependencies",
        "client/test_list_newest",
        "store/lua/test_limits",
        "store/lua/test_limit_definitions",
        "store/lua/test_shares",
        "store/lua/test_operators_and_pipelines",
        "store/lua/test_schedules",
        "store/lua/test_batches",
        "store/lua/test_events",
        "store/lua/test_subscriptions",
        "store/lua/test_bugs_found_by_review",
        "client/test_undefined_limits",
        "store/lua/test_deadlines",
        "store/lua/test_expiry",
        "store/lua/test_failures",
        "store/lua/test_fields",
        "store/lua/test_forks",
        "store/lua/test_heartbeats",
        "store/lua/test_tags",
        "store/lua/test_fair_order",
        "store/lua/test_pools",
        "store/lua/test_wakeups",
        "store/lua/test_filters",
        "store/lua/test_filters_by_set",
        "client/test_operations",
        "job/test_history",
        "job/test_time_line",
        "job/test_failure_groups",
        "job/test_result",
        "store/lua/test_statistics",
        "store/test_damaged_records",
        "store/lua/test_check",
        "store/lua/test_explain",
        "store/lua/test_explain_and_claim",
    )
]


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    line: str
    instead: str = ""


BUGS = [
    Bug(
        "a check trusts what it read before a repair",
        "check_walk",
        "if step.has_repaired then value = read_entry(kind.type, name, member) end",
    ),
    Bug(
        "a check does not look for missing timers of scheduled jobs",
        "check_jobs",
        "if job.state == 'scheduled' and not score(key.timers, job.id) then",
        "if false then",
    ),
    Bug(
        "a forgotten ZREM: a job stays in its old index",
        "transitions",
        "collect(index_removals, index[before], id)",
    ),
    Bug(
        "a timer outlives the run",
        "transitions",
        "if not timer and (before == 'scheduled' or before == 'running') then",
        "if not timer and before == 'scheduled' then",
    ),
    Bug("no fence: another executor may write", "lease", "run.executor ~= executor or ", ""),
    Bug(
        "no fence: an old attempt may write",
        "lease",
        "if job.state == 'running' and job.attempt == attempt then",
        "if job.state == 'running' then",
    ),
    Bug(
        "a lease that ended stays with its executor", "lease", "collect(held_removals, key.held(run.executor), job.id)"
    ),
    Bug("a detached job stays with its executor too", "detach", "redis.call('HDEL', key.held(run.executor), job.id)"),
    Bug("a detached job is still its executor's", "detach", "run.outcome, to)", "run.outcome, run.executor)"),
    Bug(
        "a detached job has the rest of its old lease",
        "detach",
        "redis.call('ZADD', key.timers, now + job.lease, job.id)",
    ),
    Bug(
        "a released job goes to the end of the line",
        "lease",
        "else to_waiting(job, fields) end",
        "else job.arrival = reserve_arrivals(1) + 1; to_waiting(job, fields) end",
    ),
    Bug(
        "how a dependency ended is forgotten when it is pruned",
        "prune",
        "outcomes.remember(job, job.state)",
        "",
    ),
    Bug(
        "how a dependency ended is forgotten when it is not kept",
        "lease",
        "outcomes.remember(job, state)",
        "",
    ),
    Bug(
        "a new job has the outcome of an earlier one with its id",
        "enqueue",
        "if found.stored then outcomes.forget(found.stored) end",
        "",
    ),
    Bug(
        "a retried job believes what it knew of a dependency before that one's retry",
        "dependencies",
        "letter = outcomes.find(dependency) or before\n",
        "letter = before == '-' and outcomes.find(dependency) or before\n",
    ),
    Bug(
        "a dependency that is gone counts as succeeded",
        "outcomes",
        "return type(score) == 'string' and LETTERS[tonumber(score) % 4] or nil",
        "return type(score) == 'string' and 'S' or nil",
    ),
    Bug(
        "one retry too many",
        "budgets",
        "if job.retries_used >= option(job, 'retries') then return nil end",
        "if job.retries_used > option(job, 'retries') then return nil end",
    ),
    Bug(
        "one timeout too many",
        "budgets",
        "return before < max and before or nil",
        "return before <= max and before or nil",
    ),
    Bug(
        "a timeout is charged to the budget for stalls",
        "budgets",
        "used[place] = math.min(before + 1, MAX_COUNT)",
        "used[2] = math.min(before + 1, MAX_COUNT)",
    ),
    Bug(
        "a timeout with a budget of its own uses up a retry too",
        "budgets",
        "job.stops = struct.pack(COUNTERS, unpack(used))",
        "job.stops, job.flags = struct.pack(COUNTERS, unpack(used)), with(job.flags, RETRYING, true)",
    ),
    Bug(
        "a retry by an operator keeps what the last life used up",
        "budgets",
        "if job.stops then job.stops = NO_STOPS end",
    ),
    Bug(
        "what a job that was read before has used up is kept for the next",
        "record",
        "if stops ~= (job.stops or NO_STOPS) then job.stops = stops end",
        "if stops ~= NO_STOPS then job.stops = stops end",
    ),
    Bug(
        "an error that is final is said to have used up its retries",
        "finish",
        "local why = WHY_OF_FINAL[item.final] or",
        "local why = (WHY_OF_FINAL[item.final] and 'E') or",
    ),
    Bug(
        "a job whose work was done is retried unasked",
        "retry",
        "if WORK_DONE[group] and not args.force then return 'DONE' end",
        "",
    ),
    Bug(
        "a limit stays noted as undefined when it is defined",
        "limit_definitions",
        "  if text then limits.forget_undefined(name) end",
        "",
    ),
    Bug(
        "the wait before a retry is doubled once too often",
        "backoff",
        "math.min(used, 40)",
        "(used + 1)",
    ),
    Bug("the last wait of a policy does not repeat", "backoff", "waits[math.min(used + 1, #waits)]", "waits[used + 1]"),
    Bug("the first wait of a policy is left out", "backoff", "waits[math.min(used + 1,", "waits[math.min(used + 2,"),
    Bug("a wait is not capped", "backoff", "math.min(wait, item.cap or MAX_DURATION, MAX_DURATION)", "wait"),
    Bug("a wait is spread before it is capped", "backoff", "floor(wait * (", "floor((waits and waits[1] or wait) * ("),
    Bug(
        "an error that a policy excludes is said to be declared",
        "finish",
        "not_retryable = 'N' }",
        "not_retryable = 'D' }",
    ),
    Bug(
        "a repeated claim gets new jobs",
        "claim",
        "if counter == args.counter then return repeat_claim(args, line) end",
    ),
    Bug(
        "a wish to cancel is forgotten at a release",
        "lease",
        "if has(job.flags, CANCELLING) then return finish_job(job, 'cancelled', nil, fields) end",
    ),
    Bug("a clock that goes back is not noticed", "timers", "elseif gap < 0 then shorten_leases() end", "end"),
    Bug("a lease is spared for ever", "lease", "spared + 1, length))", "spared, length))"),
    Bug("renew does not look at the attempt", "renew", "if is_over or holds ~= attempt then", "if not marks then"),
    Bug(
        "a crash is charged as a retry",
        "lease",
        "job.crashes_used, job.misses = job.crashes_used + 1, 0",
        "job.retries_used, job.misses = job.retries_used + 1, 0",
    ),
    Bug("a long checkpoint is left behind", "save", "redis.call('DEL', key.blob(letter, id))", "local _"),
    Bug(
        "a page begins with the last job of the one before",
        "find",
        "if member[1] == id and tonumber(member[2]) == tonumber(score) then first = first + 1 end",
    ),
    Bug(
        "the newest jobs are merged by their ids alone",
        "list_newest",
        "if one.score ~= other.score then return one.score > other.score end",
    ),
    Bug("a page of the newest begins each state anew", "list_newest", "if rank > 0 and begun then", "if false then"),
    Bug(
        "a job is cancelled though one waits for it that is not",
        "cancel",
        "if not found[id] then found[id], list[#list + 1] = true, id end",
    ),
    Bug(
        "a claim wakes nobody for what is left",
        "claim",
        "pass_on(open, args.shares and 1 or place, args.idle or args.shares)",
    ),
    Bug("sets: a pool is not told of a new job", "transitions", "if markers.pools then note_ready(queue) end"),
    Bug(
        "sets: a pool is not told of a job that comes back",
        "transitions",
        "if markers.pools then note_ready(job.queue) end",
    ),
    Bug(
        "sets: a pool is not told that a full queue has room",
        "transitions",
        "if core.setting('concurrency', queue) > 0 then note_ready(queue) end",
    ),
    Bug(
        "sets: a pool is not told that a job left a full queue for its next stage",
        "finish",
        "if markers.pools then leave_running(job.queue) end",
    ),
    Bug(
        "sets: executors that are gone hide those of other sets",
        "notify",
        "redis.call('DEL', from) -- the others there have been idle for longer",
    ),
    Bug(
        "sets: a forgotten queue loses its idle executors",
        "queues",
        "redis.call('DEL', key.fair(queue), key.load(queue), key.bridged(queue))",
        "redis.call('DEL', key.idle(queue), key.fair(queue), key.load(queue), key.bridged(queue))",
    ),
    Bug("sets: the end of a pattern overlaps its start", "queue_sets", "to < #first or "),
    Bug("sets: a pool is not told of a resumed queue", "queues", "core.queue_sets.mark_ready(args.queue)"),
    Bug(
        "sets: a change of concurrency is not looked at",
        "configure",
        "core.queue_sets.fill_pools() -- the concurrency may have changed",
    ),
    Bug(
        "sets: a new pool does not look at all queues",
        "queue_sets",
        "redis.call('HSET', key.filling(), set.id, '')\n    set_marker",
        "set_marker",
    ),
    Bug(
        "sets: an empty queue of a pool loses its place before its turn",
        "pools",
        "entry.is_asked and entry.took == 0 and has_nothing(entry.queue)",
        "entry.is_asked and has_nothing(entry.queue)",
    ),
    Bug("sets: a new queue of a pool has saved up turns", "pools", "position = least", "position = 0"),
    Bug(
        "sets: a worker is counted for its old queues too", "queue_sets", "redis.call('ZREM', key.live(before), worker)"
    ),
    Bug(
        "sets: an exclusion of one pool applies to others",
        "queue_sets",
        "list = add_list(set)\n    else",
        "local _ = 1\n    else",
    ),
    Bug("sets: only executors of the queue alone are woken", "notify", "if not sets[1] then", "if true then"),
    Bug(
        "sets: a claim of a pool wakes nobody for what is left",
        "pools",
        "if is_complete or is_more then pass_on(set, hints) end",
    ),
    Bug(
        "sets: an executor of a pool forgets for which queue it was woken",
        "pools",
        "for _, queue in ipairs(hints) do",
        "for _, queue in ipairs({}) do",
    ),
    Bug(
        "sets: a claim that has more queues to ask does not say so",
        "pools",
        "return is_filling or is_more",
        "return false",
    ),
    Bug(
        "sets: an idle executor stays idle when it claims",
        "claim",
        "redis.call('ZREM', key.idle(set_of(args).id), args.executor)",
    ),
    Bug(
        "sets: a worker with many jobs is listed with the first page of them",
        "workers",
        "if place > left then return { executor, ids[place - 1] or '' } end",
        "if place > left then return nil end",
    ),
    Bug(
        "sets: sets are forgotten although they are used",
        "queue_sets",
        "    redis.call('ZADD', key.sets(), now, set.id)\n    redis.call('SET'",
        "    redis.call('SET'",
    ),
    Bug("waiters are not told", "lease", "notify_waiters(job, waiters)"),
    Bug(
        "a unique key is not freed when its job ends",
        "lease",
        "if has(job.flags, UNIQUE) then release_key(job, goes and 'qpk' or 'qp') end",
    ),
    Bug("a job that is tried again does not take its key again", "retry", "and reacquire_key(job)", "and false"),
    Bug("a key outlives the kept job that had it", "prune", "release_key(job, 'k')", "release_key(job, 'p')"),
    Bug(
        "the grace is forgotten at a renewal",
        "renew",
        "collect(index_additions, key.timers, now + length, id)",
        "collect(index_additions, key.timers, now + length - setting('grace'), id)",
    ),
    Bug("a token is ignored", "call", "if answer then return answer end"),
    Bug(
        "a job that is not kept stays in its index",
        "transitions",
        "collect(index_removals, key.index[job.queue][job.state], id)",
    ),
    Bug(
        "a job that runs once at most comes back after a crash",
        "lease",
        "if is_exhausted(job, job.crashes_used, option(job, 'crashes')) then\n"
        "    return fail_job(job, 'crashed', exhausted_reason(job), waiters, fields, fingerprint)\n  end\n"
        "  requeue_charged(job, fields)",
        """local over = job.crashes_used > option(job, 'crashes') and not has(job.flags, CANCELLING)
  if over then return fail_job(job, 'crashed', 'E', waiters, fields, fingerprint) end
  requeue(job, 0, fields, true)""",
    ),
    Bug(
        "the lease of one queue is that of another",
        "claim",
        "args.lease or setting('lease', queue)",
        "args.lease or setting('lease', args.queues[1])",
    ),
    # Composition
    Bug(
        "a job is not cancelled with the one that it waits for",
        "dependencies",
        "if own == 'c' and letter ~= '-' and not is_satisfied then",
        "if false then",
    ),
    Bug(
        "a failure is as good as a success for those that wait",
        "dependencies",
        "return letter == 'S' or (policy == 'r' and letter ~= '-')",
        "return letter ~= '-'",
    ),
    Bug(
        "who has been told stays in line",
        "dependencies",
        "if is_satisfied then redis.call('ZREM', key.dependents(ended), id) end",
    ),
    Bug(
        "the rest of those that wait is forgotten",
        "dependencies",
        "dependencies.save_position(ended, letter, rest)",
        "local _",
    ),
    Bug(
        "those that wait are not told that a job is tried again",
        "retry",
        "if has(job.flags, AWAITED) then to_resolve[#to_resolve + 1] = { id, '-', '-inf' } end",
    ),
    Bug(
        "a job may be made to wait for itself",
        "depend",
        "if is_cycle then refuse('CYCLE', 'job ' .. args.id .. ' would wait for itself') end",
    ),
    Bug(
        "a job that takes the place of another is not awaited",
        "enqueue",
        "found.awaited[id] = true\n  if FINAL",
        "if FINAL",
    ),
    Bug(
        "a job that others wait for can be deleted",
        "delete",
        "if has(job.flags, AWAITED) and redis.call('EXISTS', key.dependents(id)) == 1 then return 'BLOCKED' end",
    ),
    Bug(
        "a cancellation of dependents only is done again",
        "cancel",
        "return answers, is_unchanged and #dependents == 0",
        "return answers, is_unchanged",
    ),
    Bug(
        "a slot stays with a job that has ended",
        "limits",
        "if limits.remove_holder(limit, job.id) then limits.offer_slots(limit) end",
        "limits.offer_slots(limit)",
    ),
    Bug(
        "a slot that is given back is for nobody",
        "limits",
        "if limits.remove_holder(limit, job.id) then limits.offer_slots(limit) end",
        "limits.remove_holder(limit, job.id)",
    ),
    Bug(
        "a job that was handed on and goes leaves its slot to nobody",
        "limits",
        "limits.offer_slots(redis.call('HGET', key.job(job.id), 'l'), parked_by)",
    ),
    Bug(
        "one start too many in a period",
        "limits",
        "counts_until(limit, slots - free - 1, per) <= now",
        "counts_until(limit, slots - free, per) <= now",
    ),
    Bug("a limit that is raised strands who is parked", "limit_definitions", "limits.review(name)"),
    Bug(
        "a declaration replaces what was set by hand",
        "limit_definitions",
        "store_record(args.name, by_hand, declared)\n  publish_events()\n  return is_changed and (by_hand",
        "store_record(args.name, nil, declared)\n  publish_events()\n  return is_changed and (by_hand",
    ),
    Bug(
        "an older declaration of a limit replaces a newer one",
        "limit_definitions",
        "if known and known.revision > declared.revision then",
        "if false then",
    ),
    Bug("a limit never expires", "limit_definitions", "  store_record(name, nil, declared)\nend", "end"),
    Bug(
        "a limit that is set for good expires",
        "limit_definitions",
        "return redis.call('ZREM', key.timers, '=' .. name)",
        "return",
    ),
    Bug(
        "a slot that is released by hand is for nobody",
        "limit_definitions",
        "  limits.offer_slots(args.limit)\n",
        "",
    ),
    Bug(
        "a key that sorts between others is counted with one of them",
        "limits",
        "'(' .. limit .. '!')",
        "'(' .. limit .. '~')",
    ),
    Bug(
        "a declaration replaces a schedule that was made by hand",
        "schedules",
        "local is_by_hand = known and not known.revision",
        "local is_by_hand = false",
    ),
    Bug(
        "a schedule forgets what was declared",
        "schedules",
        "if known and known.revision then write_fields(args.name, 'default:', fields_of(known, '')) end",
    ),
    Bug(
        "a schedule that is reset stays overridden",
        "schedules",
        "  write_fields(args.name, 'default:', {})\n",
        "",
    ),
    Bug(
        "a parked job that begins to wait stays parked",
        "depend",
        "if has(job.flags, LIMITED) then limits.leave(job) end",
    ),
    Bug(
        "one more job of a queue at once than configured",
        "gate",
        "local room = concurrency - redis.call(",
        "local room = concurrency + 1 - redis.call(",
    ),
    Bug(
        "the weight of a share is ignored", "shares", "fair_shares.TURN / (tonumber(known[2]) or 1)", "fair_shares.TURN"
    ),
    Bug(
        "virtual time stands still",
        "shares",
        "redis.call('HSET', key.fair(job.queue), field, string.format('%.0f', job.arrival))",
    ),
    Bug(
        "the worker of a job that is taken away is not told",
        "actions",
        "send_message(worker_of(run.executor), string.format('lost %s %s %d', run.executor, job.id, job.attempt))",
    ),
    Bug("a moved job is not known in its new queue", "move", "register_queue(queue)"),
    Bug(
        "the next stage has the checkpoint of the last",
        "finish",
        "redis.call('HDEL', key.job(job.id), 'c', 'f', 'l', 'b', 'd', 'x')",
        "redis.call('HDEL', key.job(job.id), 'f', 'l', 'b', 'd', 'x')",
    ),
    Bug(
        "a job waits again for what it waited for before",
        "dependencies",
        "dependencies.drop_runtime_edges(job.id)\n  local left",
        "local left",
    ),
    Bug("firings overlap", "schedules", "return last and not FINAL[last.state]", "return false"),
    Bug(
        "one firing too many is made up for",
        "schedules",
        "first = math.max(1, #due - tonumber(schedule.backlog) + 1)",
        "first = math.max(1, #due - tonumber(schedule.backlog))",
    ),
    Bug(
        "an older release declares a schedule anew",
        "schedules",
        "if revision and tonumber(revision) > args.revision then",
        "if false then",
    ),
    Bug("jitter is one millisecond short", "schedules", "% (jitter + 1)", "% jitter"),
    Bug("times run out and nobody is asked", "schedules", "redis.call('SADD', key.refill(), name)"),
    Bug(
        "a job that waits for others misses its deadline and starts",
        "deadlines",
        "if job and not FINAL[job.state] and job.state ~= 'running' then deadlines.miss(job) end",
        "if job and (job.state == 'waiting' or job.state == 'scheduled') then deadlines.miss(job) end",
    ),
    Bug(
        "a job that comes back after its deadline starts",
        "gate",
        "tonumber(redis.call('HGET', key.job(job.id), 'd') or now + 1) <= now",
        "false",
    ),
    Bug(
        "a job that is handed on counts as one that came",
        "transitions",
        "if job.state ~= 'waiting' and job.state ~= 'throttled' then count_arrival(job.queue) end",
        "if job.state ~= 'waiting' then count_arrival(job.queue) end",
    ),
    Bug(
        "a job is claimed whatever its record says", "claim", "if not job or job.state ~= 'waiting' or", "if not job or"
    ),
    Bug(
        "a lease is met whatever its record says",
        "timers",
        "elseif job and job.state == 'running' then",
        "elseif job then",
    ),
    Bug(
        "an entry without a record stays", "repair", "elseif fault == 'NOTFOUND' then\n    forget(id, found_in)\n  ", ""
    ),
    Bug(
        "a running record that nobody holds has no lease",
        "repair",
        "if job.state == 'running' then return restore_lease(job) end",
    ),
    Bug("a newer record is mended", "record", "return version > VERSION and 'NEWER' or 'DAMAGED'", "return 'NOTFOUND'"),
    Bug("what is skipped is met again and again", "timers", "'LIMIT', stay, MAX_TIMERS", "'LIMIT', 0, MAX_TIMERS"),
    Bug(
        "what is skipped starves what stands behind it",
        "claim",
        "got.parked + got.mismatched == passed",
        "got.parked == passed",
    ),
    Bug("nobody waits for what cannot be met", "claim", "local first = unreadable_timers", "local first = 0"),
    Bug("a failed call keeps half of its writes", "call", "core.flush_after_error()", ""),
    Bug(
        "a slot whose holder is gone stays taken",
        "limits",
        "is_stale = limits.remove_holder(limit, id) or is_stale",
        "",
    ),
    Bug("a job is pruned whatever its record says", "prune", "if not job or job.state ~= state or", "if not job or"),
    Bug("notes outlive their job", "record", "  mark_extra(job)\n  local notes", "  local notes"),
    Bug("errors outlive their job", "errors", "job.flags = with(job.flags, EXTRA, true)", ""),
    Bug(
        "another end of an attempt is taken for the same",
        "finish",
        "if run.outcome ~= letter then return false end",
        "do return run.outcome == letter end",
    ),
    Bug(
        "a retried job expires while it runs",
        "transitions",
        "elseif FINAL[before] then\n    collect(index_removals, key.expiring(), job.id)",
        "elseif FINAL[before] then",
    ),
    Bug(
        "a deleted job stays among those that expire",
        "transitions",
        "if flags >= EXPIRES and has(flags, EXPIRES) and FINAL[job.state] then",
        "if false then",
    ),
    Bug("a failed job expires like others", "expiry", "if own and job.state ~= 'failed' then", "if own then"),
    Bug(
        "a job that outlives its queue's setting is removed with the others",
        "prune",
        "if time > now then return set_aside(job, time) end",
    ),
    Bug(
        "jobs that are set aside stay beyond the maximum number",
        "prune",
        "if not is_excess and has(job.flags, EXPIRES) then",
        "if has(job.flags, EXPIRES) then",
    ),
    Bug(
        "jobs that outlive their queue's setting are met again and again",
        "prune",
        "job.since - expiry.SET_ASIDE, job.id)",
        "job.since, job.id)",
    ),
    Bug(
        "a job that advances loses its fields",
        "finish",
        "key.after(job.id), key.steps(job.id))",
        "key.after(job.id), key.steps(job.id), key.fields(job.id))",
    ),
    Bug("fields of an enqueue outlive their job", "enqueue", "    batch.flags = batch.flags + EXTRA\n", ""),
    Bug("fields are changed without a lease", "save", "if not job then\n", "if not job and not list then\n"),
    Bug(
        "running jobs do not count in the fair order",
        "claim",
        "load = running / weights[place], planned = 0",
        "load = 0, planned = 0",
    ),
    # Failures
    Bug("a retried job stays among the failed ones", "retry", "if job.state == 'failed' then failures.remove(job) end"),
    Bug(
        "a deleted job stays among the failed ones",
        "transitions",
        "if job.state == 'failed' then core.failures.remove(job) end",
    ),
    Bug(
        "a name without failed jobs stays",
        "failures",
        "redis.call('ZREM', key.failed_names(kind), name)",
    ),
    Bug(
        "one name too many is listed",
        "failures",
        "redis.call('ZCARD', names) + coming >= MAX_NAMES[kind]",
        "redis.call('ZCARD', names) + coming > MAX_NAMES[kind]",
    ),
    Bug(
        "a job under `other` stays there",
        "failures",
        "if failures.is_capped(kind) then take_out(kind, failures.OTHER, job.id) end",
    ),
    Bug(
        "an error is not counted again before another example is taken",
        "fingerprints",
        "    redis.call('HSET', record, 'last', now, 'errors', decimal[seen + 1])\n    return name",
        "    return name",
    ),
    Bug(
        "the traceback stays that of the first example",
        "fingerprints",
        "if taken and now >= taken and now - taken < EXAMPLE_AGE then",
        "if taken then",
    ),
    Bug(
        "a fingerprint that comes again begins anew",
        "fingerprints",
        "traceback, not taken)))",
        "traceback, true)))",
    ),
    Bug(
        "more fingerprints are known than may be",
        "fingerprints",
        "  forget_oldest()\n  return name",
        "  return name",
    ),
    Bug(
        "an error that comes again after another is taken for the same",
        "errors",
        "if last == attempt - 1 and known == fingerprint and text == description then",
        "if last == attempt - 1 and known == fingerprint then",
    ),
    Bug("errors of forgotten attempts stay", "errors", "redis.call('LPOP', list)\n", "do return end\n"),
    Bug(
        "another error of the same text is taken for the same",
        "finish",
        "return not fingerprint or (item.fingerprint or '') == '' or fingerprint == fingerprints.name(item)",
        "return true",
    ),
    Bug(
        "a crash fails with the fingerprint of no error",
        "lease",
        "waiters, fields, fingerprint)\n  end\n",
        "waiters, fields)\n  end\n",
    ),
    Bug("control characters stay in a group", "failures", "text = string.gsub(text, '%c', '?')", "text = text .. ''"),
    Bug(
        "the first page of failures is the oldest",
        "list_failures",
        "math.max(0, behind - limit), behind - 1, 'WITHSCORES')",
        "0, limit - 1, 'WITHSCORES')",
    ),
    Bug(
        "a failed job that is listed nowhere stays so",
        "repair",
        "if state == 'failed' and not failures.is_listed(job, group, fingerprint) then return false end",
    ),
    Bug(
        "a listed job without a record stays",
        "failures",
        "  take_out(kind, name, id)\n  core.flush()\n  return true",
        "  return true",
    ),
    Bug(
        "weights do not count in the fair order",
        "claim",
        "entry.load, count = entry.running / entry.weight, count - 1",
        "entry.load, count = entry.running, count - 1",
    ),
    Bug(
        "a queue that has no more ends a fair claim",
        "claim",
        "    if enough then return true end\n  end\n  return false",
        "    if enough then return true end\n  end\n  return true",
    ),
    # Tags, scopes and tracked jobs
    Bug(
        "marks: a deleted job stays among those with its tag",
        "transitions",
        "  if flags >= INDEXED and has(flags, INDEXED) then core.marks.remove(job) end\n",
    ),
    Bug(
        "marks: the size of a tag is not set",
        "call",
        "  if changed_counts then core.marks.store_counts() end\n  if args.token",
        "  if args.token",
    ),
    Bug(
        "marks: a tag without jobs stays in the catalogue",
        "marks",
        "collect(removals, catalogue, member)",
        "collect(additions, catalogue, count, member)",
    ),
    Bug(
        "marks: a tag that is removed stays in its index",
        "marks",
        "if is_new[index] then is_new[index] = false else collect(index_removals, index, job.id) end",
        "if is_new[index] then is_new[index] = false end",
    ),
    Bug(
        "marks: a tag that a job has is given again at another time",
        "marks",
        "if is_new[index] then is_new[index] = false else",
        "if not is_new[index] then",
    ),
    Bug(
        "marks: a job is found by its whole scope only",
        "marks",
        "    paths[#paths + 1] = path\n",
        "    paths[1] = path\n",
    ),
    Bug(
        "marks: a stage adds its tags to those that it should replace",
        "marks",
        "    tags = marks.limit_tags(batch.tags)\n",
        "    tags = join_tags(tags, batch.tags)\n",
    ),
    Bug("marks: a job that replaces a tracked one is not tracked", "enqueue", "    found.tracked[id] = true\n", ""),
    Bug(
        "marks: long marks outlive their job",
        "marks",
        "  redis.call('DEL', key.blob('m', job.id))\nend",
        "end",
    ),
    Bug(
        "marks: the flag outlives the last mark",
        "marks",
        "job.flags = with(job.flags, INDEXED, text ~= '')",
        "job.flags = with(job.flags, INDEXED, true)",
    ),
    Bug(
        "marks: a moved job loses its tags",
        "move",
        "if args.tags then marks.replace_tags(job, args.tags) end",
        "marks.replace_tags(job, args.tags or {})",
    ),
    Bug("marks: tags without a limit", "marks", "      if room < 0 then tag = OTHER end\n", ""),
    Bug(
        "marks: an entry that no record names stays", "mark_repair", "        collect(index_removals, index, id)\n", ""
    ),
    Bug(
        "marks: an entry that is missing is not added",
        "repair",
        "  if has(job.flags, INDEXED) then marks.restore(job) end\n",
        "",
    ),
    Bug(
        "marks: a deleted job that was tracked is forgotten",
        "marks",
        "    marks.remember_tracked(job.id)\n",
    ),
    # Batches
    Bug(
        "a batch ends while it is open",
        "batches",
        "if values[1] ~= 'closed' then return end",
        "if values[1] == 'done' then return end",
    ),
    Bug(
        "a batch ends again when a member of it is retried",
        "batches",
        "if values[1] ~= 'closed' then return end",
        "if values[1] == 'open' then return end",
    ),
    Bug(
        "a batch counts ends of jobs that were not open in it",
        "batches",
        "if count > 0 then redis.call('HINCRBY', key.batch_record(name), kind, count) end",
        "redis.call('HINCRBY', key.batch_record(name), kind, #ids)",
    ),
    Bug(
        "a batch does not notice that its last open member was replaced",
        "batches",
        "change_later('left', name, job.id)",
    ),
    Bug(
        "a member of a batch that is retried is not open",
        "batches",
        "if redis.call('SADD', key.open_members(name), job.id) == 1 then",
        "if redis.call('SREM', key.open_members(name), job.id) == 0 then",
    ),
    Bug(
        "a job of an earlier batch of the same name counts in this one",
        "batches",
        "if not name or not redis.call('ZSCORE', key.batch(name), job.id) then return end\n  if redis.call('SADD'",
        "if not name then return end\n  if redis.call('SADD'",
    ),
    Bug(
        "a job leaves its batch although its successor, stored by the same call, belongs to it",
        "batches",
        "  if kind == 'left' then return true end\n",
        "  if kind == 'left' then return apply('SREM', name, ids) ~= nil end\n",
    ),
    Bug(
        "batches that one call leaves to others are forgotten",
        "batches",
        "  redis.call('SADD', key.batches_ending(), name)\n",
        "",
    ),
    Bug(
        "an ended member of a batch that is replaced counts twice",
        "batches",
        "    redis.call('HINCRBY', key.batch_record(name), job.state, -1)\n  else",
        "  else",
    ),
    Bug(
        "everyone can add to a closed batch",
        "batches",
        "if state == 'closed' and not (type(adder)",
        "if state == 'locked' and not (type(adder)",
    ),
    Bug(
        "an error of the server at the end of a batch loses its callback",
        "batches",
        "  if not is_refusal(fault) then error(fault, 0) end\n",
        "  if not is_refusal(fault) then return end\n",
    ),
    Bug("jobs are added to a batch that was cancelled", "batches", "if values[2] then refuse", "if false then refuse"),
    Bug(
        "members of a batch that are not kept do not end",
        "lease",
        "if has(job.flags, INDEXED) then core.batches.on_end(job, state) end",
        "if has(job.flags, INDEXED) and not goes then core.batches.on_end(job, state) end",
    ),
    Bug(
        "a batch with cancelled members counts as a success",
        "batches",
        "counts[2] + counts[3] == 0 and 'succeeded'",
        "counts[2] == 0 and 'succeeded'",
    ),
    Bug(
        "a batch whose members have ended is not done when it is closed",
        "batches",
        "  batches.complete(args.name)\n  publish_events()\n  return changed, changed == 0",
        "  publish_events()\n  return changed, changed == 0",
    ),
    Bug(
        "the index of a batch outlives it",
        "batches",
        "key.batch_record(name), key.open_members(name), key.batch(name))",
        "key.batch_record(name), key.open_members(name))",
    ),
    Bug(
        "a deleted job stays in the index of its batch",
        "marks",
        "  if names.batch then leave(key.batch(names.batch), job.id) end\n",
        "",
    ),
    Bug("a failure is not counted", "lease", "  count_failure(job)\n", ""),
    Bug("a released attempt counts as a run", "statistics", "IS_RUN = { S = true,", "IS_RUN = { S = true, R = true,"),
    Bug(
        "a job counts as waiting from when it was created",
        "claim",
        "count_wait(job, waited)",
        "count_wait(job, now - job.created)",
    ),
    Bug(
        "a crash counts as a retry although its job was cancelled",
        "lease",
        "if not has(job.flags, CANCELLING) then count_retry(job) end",
        "count_retry(job)",
    ),
    Bug("lines are folded and stay", "folding", "  redis.call('DEL', key.unfolded(queue))\n", ""),
    Bug(
        "variances are merged as if the means were equal",
        "folding",
        "deviations = deviations + difference * difference * count * more / (count + more)",
    ),
    Bug(
        "arrivals of old slots are lost",
        "throughput",
        "core.keep_arrivals(queue, slot,",
        "(function() end)(queue, slot,",
    ),
    Bug("a total leaves out its tasks", "folding", "merge_summary(child(into, prefix .. TOTAL, new_summary), summary)"),
    Bug(
        "a forgotten queue keeps its statistics",
        "queues",
        "  core.forget_statistics(queue)\n",
    ),
    Bug("a reader takes no notice of unfolded lines", "stats", "    folding.merge_summary(total, summary)\n", ""),
    *(Bug(*each) for each in plant_queries.BUGS),
    Bug(
        "all jobs of an event are said to be in the queue of the first",
        "emit",
        "if event.queue ~= queue then change_queue(event, queue, count) end",
    ),
    Bug(
        "the details of an event are those of the first job",
        "emit",
        "if list[place] ~= list[place - size] then return encode_list(list, count * size) end",
    ),
    Bug(
        "a moved job is said to come from where it went",
        "move",
        "emit('moved', job, { from, queue,",
        "emit('moved', job, { queue, queue,",
    ),
    Bug(
        "an event of a cancelled job forgets who asked while it ran",
        "lease",
        "if state == 'cancelled' and has(job.flags, CANCELLING) then detail = read_request(job) end",
    ),
    Bug("the last heartbeat is when the lease ends", "lease", "math.max(0, timer - job.lease)", "timer"),
    Bug("a lease that was spared has a heartbeat", "lease", "return spared == 0 and math", "return math"),
    Bug(
        "a job that has stalled is found only later",
        "lease",
        "timer ~= nil and timer <= now",
        "timer ~= nil and timer < now",
    ),
    Bug("a worker does not say when its jobs were heard of", "workers", "last_heartbeat(job, timer, marks),", "0,"),
    Bug("a retry from the start keeps the checkpoint", "retry", "'c', 'f')", "'f')"),
    Bug("a retry from the start keeps the steps", "retry", ", key.steps(id))", ")"),
    Bug(
        "a retry continues with what was saved deleted",
        "retry",
        "if args.from_start then forget_saved(id) end",
        "forget_saved(id)",
    ),
    Bug("a fork has no checkpoint", "fork", "copy_blob('c', job.id, new.id, record, fields)"),
    Bug("a fork has no steps", "fork", "redis.call('COPY', key.steps(job.id), key.steps(new.id), 'REPLACE')"),
    Bug("a fork from the start has what was saved", "fork", "if from_start then return end"),
    Bug(
        "the first attempt of a fork begins anew",
        "claim",
        "job.attempt > 0 or (job.flags > 0 and has(job.flags, EXTRA))",
        "job.attempt > 0",
    ),
    Bug(
        "a fork is stored over another job",
        "fork",
        "if from == args.id then return true end",
        "if true then return true end",
    ),
    Bug(
        "a fork of a job that saved nothing begins anew",
        "fork",
        "if not args.from_start then check_saved(args.id, record) end",
    ),
    Bug(
        "a fork may run again although its call runs once at most",
        "fork",
        "batch.at_most_once = has(job.flags, AT_MOST_ONCE) or nil",
    ),
    Bug(
        "a fork loses the limits of its call",
        "fork",
        "limits_of(record), own_fields_of(job)",
        "nil, own_fields_of(job)",
    ),
    Bug(
        "a fork joins the batch of its call",
        "fork",
        "local names, batch = marks.of(job), {}",
        "local names = marks.of(job); local batch = { batch = names.batch }",
    ),
    Bug("a request to stop outlives a retry", "retry", "'r', 'g', 'v', 'y', 'd', 'q')", "'r', 'g', 'v', 'y', 'd')"),
    Bug(
        "an event of a time-out is forgotten",
        "finish",
        "if STOPPED[item.group] then emit(item.group, job) end",
    ),
    Bug(
        "a page of events begins with the one that is known",
        "events",
        "if first[1] == from and not is_next then from = '(' .. from end",
    ),
    Bug("events that are gone are not said to be", "events", "if is_gap(from, first[1]) then reply[3] = first[1] end"),
    Bug(
        "an event is delivered twice, by two workers",
        "subscriptions",
        "if subscription.position ~= args.expected or subscription.paused == '1' then",
        "if subscription.paused == '1' then",
    ),
    Bug(
        "an event is delivered again and again: the position does not move",
        "subscriptions",
        "redis.call('HSET', key.subscription(args.name), 'position', args.position)",
    ),
    Bug(
        "an event is delivered by a subscription that is paused",
        "subscriptions",
        "if subscription.position ~= args.expected or subscription.paused == '1' then",
        "if subscription.position ~= args.expected then",
    ),
    Bug(
        "an event is read by two workers: a lease is given away before it ends",
        "subscriptions",
        "subscription.holder ~= worker and ends > now",
        "false",
    ),
    Bug(
        "an event that was read is read again: a declaration resets the position",
        "subscriptions",
        "if not known or not known.position then --",
        "if true then --",
    ),
    Bug("story: a move hides when the job became due", "record", "  add_note(job, 'w', '', '', job.since)\n", ""),
    Bug(
        "story: the queue of the first attempts is lost",
        "move",
        "  keep_origin(job)\n  note_wait(job)\n",
        "  note_wait(job)\n",
    ),
    Bug(
        "story: the first entry changes",
        "record",
        "redis.call('HSETNX', key.job(job.id), 'e'",
        "redis.call('HSET', key.job(job.id), 'e'",
    ),
    Bug("story: nobody did it", "record", "(who or caller or '')", "(who or '')"),
    Bug("story: each parking is told", "limits", "if attempt == job.attempt then return", "if false then return"),
    Bug(
        "story: an earlier parking is forgotten",
        "limits",
        "  if attempt then\n    local limit",
        "  if false then\n    local limit",
    ),
    Bug(
        "story: nobody knows when a dependency ended",
        "dependencies",
        "dependencies.pack_edge(place, letter, however, letter ~= '-' and now))",
        "dependencies.pack_edge(place, letter, however))",
    ),
    Bug("story: a stage is not told", "finish", "'A', describe_stage(job), item)", "'A', nil, item)"),
    Bug("story: a forgotten move is not missed", "record", "NOTE_SIZE) == 'M'", "NOTE_SIZE) == '?'"),
    Bug("story: a long name is that of another queue", "finish", "or #queue <= INLINE and queue or ''", "or queue"),
    Bug("a fork has a lost payload", "fork", "record[letter] or letter == 'c' and ''", "record[letter] or ''"),
    Bug("explain: jobs ahead take no slots", "gate", "1 + (used and used[limit] or 0)", "1"),
    Bug(
        "explain: jobs ahead leave the queue as it is",
        "explain",
        "(not why and room <= ahead)",
        "(not why and room < 1)",
    ),
    Bug(
        "explain: all that are parked are next",
        "explain",
        "if job.state ~= 'throttled' then return nil end",
        "do return nil end",
    ),
    Bug(
        "explain: a lost payload is not missed",
        "front",
        "if not why and not front.has_payload(job.id, payload)",
        "if false",
    ),
    Bug("explain: a worker that drains runs jobs", "staff", "if report.draining then return false end"),
    Bug(
        "explain: a pending job that is gone is pending",
        "explain",
        "fault == 'NOTFOUND' and 'deleted'",
        "fault == 'NOTFOUND' and 'pending'",
    ),
]


def source_with(bug: Bug) -> str:
    """The library with a bug in it."""
    parts = {part: (LUA / f"{part}.lua").read_text("utf-8") for part in library.PARTS}
    assert parts[bug.file].count(bug.line) == 1, f"{bug.file}.lua does not have this line once: {bug.line}"
    parts[bug.file] = parts[bug.file].replace(bug.line, bug.instead)
    return library.join(parts)


def use(source: Path) -> None:
    """Have this process call a copy of the library."""
    text = source.read_text("utf-8")
    library._source = lambda: text  # type: ignore[assignment]


def seconds_until_caught(source: Path, tests: Sequence[str]) -> tuple[str, float]:
    """Run tests with a bug planted until the first fails: returns its name, or '' if none does."""
    environment = {**os.environ, "HOLDFAST_PLANT": str(source), "HOLDFAST_MODEL_SHRINK": "0"}
    line = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "tests.model.plant", *tests]
    began = time.monotonic()
    run = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\S+)", run.stdout, re.MULTILINE)
    assert failed or run.returncode == 0, run.stdout + run.stderr
    return failed[1] if failed else "", time.monotonic() - began


def main(wanted: str = "", by: str = "") -> int:
    missed = 0
    print("| bug | model | first direct test |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "planted.lua"
        for bug in BUGS:
            if wanted in bug.name:
                source.write_text(source_with(bug), "utf-8")
                by_model, model_seconds = seconds_until_caught(source, MODEL)
                by_test, test_seconds = ("", 0) if by == "model" else seconds_until_caught(source, DIRECT)
                model = f"{model_seconds:.0f} s" if by_model else "-"
                direct = f"`{by_test}` {test_seconds:.0f} s" if by_test else "-"
                print(f"| {bug.name} | {model} | {direct} |", flush=True)
                missed += not (by_model or by_test)
    return missed


if "HOLDFAST_PLANT" in os.environ:
    use(Path(os.environ["HOLDFAST_PLANT"]))

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
