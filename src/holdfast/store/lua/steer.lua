-- steer: what an operator does to jobs: move, release, fail.
--
--   args.ids        up to 1,000
--   args.queue      move: to this queue, as if it came just now
--   args.priority   move: with this priority; without a queue it keeps its place among its equals, unless they share the queue
--   args.delay      release: milliseconds until it is due again
--   args.group      fail: the group of the failure ('operator')
--   args.reason     release, fail: why, in words
--   args.token      see call.lua
--
-- move changes jobs that have not ended; of a running one the priority only. release gives running jobs back, uncharged; fail
-- ends jobs that have not ended. Their worker stops what runs. Return an answer per id: the job's new state, NOTFOUND,
-- NEWER, DAMAGED, or STATE.

local collect, event, integer, name, optional = core.collect, core.event, core.integer, core.name, core.optional
local queue_name, refuse, worker_of = core.queue_name, core.refuse, core.worker_of
local FAIR, FINAL, LIMITED, NOBODY, current_run = core.FAIR, core.FINAL, core.LIMITED, core.NOBODY, core.current_run
local change_head, has, load_job, note, pack_status = core.change_head, core.has, core.load_job, core.note, core.pack_status
local awaken, to_scheduled, to_waiting = core.awaken, core.to_scheduled, core.to_waiting
local arrive = core.arrive
local limit = core.limit
local know_queue, tell = core.know_queue, core.tell
local MAX_DURATION, come_back, end_attempt, fail = core.MAX_DURATION, core.come_back, core.end_attempt, core.fail
local after = core.after
local action, check_action, check_reason, verb_on_each = core.action, core.check_action, core.check_reason, core.verb_on_each

-- What is done to a job that has not ended.
local function changing(change)
  return function(id, args)
    local job, waiters = load_job(id, 'w')
    if not job then return waiters end -- NOTFOUND, NEWER or DAMAGED
    return FINAL[job.state] and 'STATE' or change(job, args, waiters)
  end
end

-- Leave the place in a queue, and stand in another.
local function change_queue(job, queue)
  local state, timer = job.state, nil
  if state == 'scheduled' then timer = tonumber(redis.call('ZSCORE', key.timers, job.id)) end
  if has(job.flags, LIMITED) then limit.leave(job) end
  collect(leaving, key.index[job.queue][state], job.id)
  job.queue, job.state = queue, nil
  arrive(job)
  know_queue(queue)
  if timer then return to_scheduled(job, timer) end
  if state == 'blocked' then return after.to_blocked(job) end
  to_waiting(job)
  awaken(queue)
end

-- Stand among the jobs of another priority; of those that share a queue each has a time of its own, so there it comes just now.
local function change_priority(job, before)
  if has(job.flags, FAIR) and job.priority ~= before then
    arrive(job)
    redis.call('HSET', key.job(job.id), 's', pack_status(job))
  end
  if job.state == 'waiting' then return to_waiting(job) end
  if job.state == 'throttled' then
    limit.unpark(job)
    to_waiting(job)
    awaken(job.queue)
  end
end

action.move = changing(function(job, args)
  local queue = args.queue or job.queue
  if job.state == 'running' and queue ~= job.queue then return 'STATE' end
  local before = job.priority
  job.priority = args.priority or before
  local head = redis.call('HGET', key.job(job.id), 'h')
  redis.call('HSET', key.job(job.id), 'h', change_head(head, queue, job.priority))
  if queue ~= job.queue then change_queue(job, queue) else change_priority(job, before) end
  event('moved', job.id)
  return job.state
end)

function check_action.move(args)
  if args.queue then queue_name(args.queue) end
  optional(args.priority, 'the priority', constants.MIN_PRIORITY, constants.MAX_PRIORITY)
  if not args.queue and not args.priority then refuse('INVALID', 'say to which queue, or which priority') end
end

verb_on_each('move', {})

-- End the attempt of a running job, and have its worker stop it. Returns the fields to write with its move.
local function take_away(job, letter, reason)
  local run = current_run(job)
  if run.executor ~= NOBODY then
    tell(worker_of(run.executor), string.format('lost %s %s %d', run.executor, job.id, job.attempt))
  end
  return end_attempt(job, run, letter, reason)
end

function check_action.release(args)
  check_reason(args)
  integer(args.delay or 0, 'the delay', 0, MAX_DURATION)
end

action.release = changing(function(job, args)
  if job.state ~= 'running' then return 'STATE' end
  event('released', job.id)
  come_back(job, args.delay or 0, take_away(job, 'R', args.reason))
  awaken(job.queue)
  return job.state
end)

verb_on_each('release', { 'allow-oom' })

function check_action.fail(args)
  check_reason(args)
  if args.group then name(args.group, 'the group of a failure', constants.MAX_NAME, '%w_.%-') end
end

action.fail = changing(function(job, args, waiters)
  local fields = job.state == 'running' and take_away(job, 'E', args.reason) or {}
  note(job, 'F', args.reason)
  fail(job, args.group or 'operator', 'P', waiters, fields)
  return 'failed'
end)

verb_on_each('fail', { 'allow-oom' })
