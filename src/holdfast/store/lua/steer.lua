-- steer: what operators do to jobs: move, release, fail.
--
--   args.ids        up to 1,000
--   args.queue      move: the new queue, in which the job is ordered as a new one
--   args.priority   move: the new priority; within a queue without shares, the job keeps its arrival order
--   args.delay      release: milliseconds until it is due again
--   args.group      fail: the failure group ('operator')
--   args.reason     release, fail: text
--   args.token      see call.lua
--
-- Errors: INVALID. `move` applies to jobs that have not ended; of a running job, only the priority can change. `release`
-- requeues running jobs without a charge; `fail` ends jobs that have not ended. Workers stop the attempts. Returns an answer
-- per id: the job's new state, NOTFOUND, NEWER, DAMAGED or STATE.

local FAIR, FINAL, LIMITED, NO_EXECUTOR, action = core.FAIR, core.FINAL, core.LIMITED, core.NO_EXECUTOR, core.action
local add_note, assign_arrival, change_head = core.add_note, core.assign_arrival, core.change_head
local check_action, check_integer, check_name = core.check_action, core.check_integer, core.check_name
local check_optional, check_queue, check_reason = core.check_optional, core.check_queue, core.check_reason
local collect, current_attempt, dependencies, emit = core.collect, core.current_attempt, core.dependencies, core.emit
local end_attempt, fail_job, has, limits = core.end_attempt, core.fail_job, core.has, core.limits
local load_job, pack_status, refuse = core.load_job, core.pack_status, core.refuse
local register_action, register_queue, requeue = core.register_action, core.register_queue, core.requeue
local send_message, to_scheduled, to_waiting = core.send_message, core.to_scheduled, core.to_waiting
local wake_later, worker_of = core.wake_later, core.worker_of
local MAX_DURATION = constants.MAX_DURATION

-- An action on jobs that have not ended.
local function unless_final(change)
  return function(id, args)
    local job, waiters = load_job(id, 'w')
    if not job then return waiters end -- NOTFOUND, NEWER or DAMAGED
    return FINAL[job.state] and 'STATE' or change(job, args, waiters)
  end
end

-- Remove a job from its queue, and add it to another.
local function change_queue(job, queue)
  local state, timer = job.state, nil
  if state == 'scheduled' then timer = tonumber(redis.call('ZSCORE', key.timers, job.id)) end
  if has(job.flags, LIMITED) then limits.leave(job) end
  collect(index_removals, key.index[job.queue][state], job.id)
  job.queue, job.state = queue, nil
  assign_arrival(job)
  register_queue(queue)
  if timer then return to_scheduled(job, timer) end
  if state == 'blocked' then return dependencies.to_blocked(job) end
  to_waiting(job)
  wake_later(queue)
end

-- Reorder a job among those of its new priority. In a queue with shares, each priority has its own virtual time, so the
-- job is ordered as a new one.
local function change_priority(job, before)
  if has(job.flags, FAIR) and job.priority ~= before then
    assign_arrival(job)
    redis.call('HSET', key.job(job.id), 's', pack_status(job))
  end
  if job.state == 'waiting' then return to_waiting(job) end
  if job.state == 'throttled' then
    limits.remove_parked(job)
    to_waiting(job)
    wake_later(job.queue)
  end
end

action.move = unless_final(function(job, args)
  local queue = args.queue or job.queue
  if job.state == 'running' and queue ~= job.queue then return 'STATE' end
  local before = job.priority
  job.priority = args.priority or before
  local head = redis.call('HGET', key.job(job.id), 'h')
  redis.call('HSET', key.job(job.id), 'h', change_head(head, queue, job.priority))
  if queue ~= job.queue then change_queue(job, queue) else change_priority(job, before) end
  emit('moved', job.id)
  return job.state
end)

function check_action.move(args)
  if args.queue then check_queue(args.queue) end
  check_optional(args.priority, 'the priority', constants.MIN_PRIORITY, constants.MAX_PRIORITY)
  if not args.queue and not args.priority then refuse('INVALID', 'specify `queue` or `priority`') end
end

register_action('move', {})

-- End the attempt of a running job, and have its worker stop it. Returns the fields to write with the job's move.
local function stop_attempt(job, letter, reason)
  local run = current_attempt(job)
  if run.executor ~= NO_EXECUTOR then
    send_message(worker_of(run.executor), string.format('lost %s %s %d', run.executor, job.id, job.attempt))
  end
  return end_attempt(job, run, letter, reason)
end

function check_action.release(args)
  check_reason(args)
  check_integer(args.delay or 0, 'the delay', 0, MAX_DURATION)
end

action.release = unless_final(function(job, args)
  if job.state ~= 'running' then return 'STATE' end
  emit('released', job.id)
  requeue(job, args.delay or 0, stop_attempt(job, 'R', args.reason))
  wake_later(job.queue)
  return job.state
end)

register_action('release', { 'allow-oom' })

function check_action.fail(args)
  check_reason(args)
  if args.group then check_name(args.group, 'the group of a failure', constants.MAX_NAME, '%w_.%-') end
end

action.fail = unless_final(function(job, args, waiters)
  local fields = job.state == 'running' and stop_attempt(job, 'E', args.reason) or {}
  add_note(job, 'F', args.reason)
  fail_job(job, args.group or 'operator', 'P', waiters, fields)
  return 'failed'
end)

register_action('fail', { 'allow-oom' })
