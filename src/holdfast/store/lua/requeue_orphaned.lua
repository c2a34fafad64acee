-- requeue_orphaned: requeue everything that a dead executor or a dead worker held.
--
--   args.executor   <node>/<worker>.<number>, or
--   args.worker     <node>/<worker>: all its executors; its record is deleted
--   args.reason     text
--
-- Errors: INVALID.
--
-- Call it only if the processes are known to be dead; a worker that is merely silent keeps its leases until they expire.
--
-- The death of an executor is charged as a crash if it held one job. If it held several, none is charged: each runs alone
-- next, and the one that kills its process again is charged. The death of a worker is charged as a lost lease. Returns the
-- requeued ids, at most 1,000: repeat until none are returned. That call deletes the executor's last claim, and the worker's
-- record and inbox.

local ALONE, charge_crash, charge_lost = core.ALONE, core.charge_crash, core.charge_lost
local check_executor, check_worker, collect, emit = core.check_executor, core.check_worker, core.collect, core.emit
local end_attempt, flush, load_held, load_job = core.end_attempt, core.flush, core.load_held, core.load_job
local loop_despite_errors, parse_hold, publish_events = core.loop_despite_errors, core.parse_hold, core.publish_events
local register, requeue, wake_executor, with = core.register, core.requeue, core.wake_executor, core.with
local worker_of = core.worker_of
local MAX_BATCH = constants.MAX_BATCH

local function requeue_job(executor, id, attempt, charge, reason)
  local job, run = load_held(executor, id, attempt)
  if not job then return collect(held_removals, key.held(executor), id) end
  if charge == 'lost' then return charge_lost(job, run, reason) end
  if charge == 'crash' then return charge_crash(job, nil, end_attempt(job, run, 'K', reason)) end
  job.flags, job.misses = with(job.flags, ALONE, true), 0
  emit('released', job)
  requeue(job, 0, end_attempt(job, run, 'R', reason))
end

local function requeue_executor(executor, args, lost)
  local held = redis.call('HGETALL', key.held(executor))
  local charge = args.worker and 'lost' or (#held == 2 and 'crash' or 'none')
  local max = #held / 2 == MAX_BATCH + 1 and MAX_BATCH - 1 or MAX_BATCH -- never leave a single job of several
  local place = -1
  loop_despite_errors(function()
    while place + 2 < #held and #lost < max do
      place = place + 2
      lost[#lost + 1] = held[place]
      requeue_job(executor, held[place], parse_hold(held[place + 1]), charge, args.reason)
    end
  end, function() collect(held_removals, key.held(executor), held[place]) end) -- its lease will expire
  flush()
  if #held == 0 then
    local worker, number = worker_of(executor)
    redis.call('HDEL', key.worker(worker), number)
  end
end

local function executors_of(worker)
  local executors = {}
  for _, field in ipairs(redis.call('HKEYS', key.worker(worker))) do
    if tonumber(field) then executors[#executors + 1] = worker .. '.' .. field end
  end
  return executors
end

register('requeue_orphaned', { 'allow-oom' }, function(args)
  local executors, lost = { args.executor }, {}
  if args.worker then
    check_worker(args.worker)
    executors = executors_of(args.worker)
  else
    check_executor(args.executor)
  end
  for _, executor in ipairs(executors) do requeue_executor(executor, args, lost) end
  flush()
  if args.worker and #lost == 0 then
    core.queue_sets.forget_worker(args.worker)
  end
  local queues = {}
  for _, id in ipairs(lost) do
    local job = load_job(id)
    if job and job.state == 'waiting' then queues[job.queue] = true end
  end
  for queue in pairs(queues) do wake_executor(queue) end
  publish_events(args.executor or args.worker)
  return lost
end)

core.executors_of = executors_of
