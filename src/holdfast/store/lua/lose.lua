-- lose: take back everything that a dead executor, or a dead worker, held. Only whoever knows that the processes are dead
-- may say so; a worker that is merely silent keeps its leases until they end.
--
--   args.executor   <node>/<worker>.<number>, or
--   args.worker     <node>/<worker>: all of its executors, and its record is removed
--   args.reason     why, in words
--
-- An executor's death is charged as a crash if it held one job. If it held several, none is charged: each runs alone
-- next, and the one that kills again is charged. A worker's death is charged as a lost lease. Returns the ids taken back; at
-- most 1,000 a call: call again until it returns none. The call that returns none forgets the executor's last claim, and
-- the worker's record and inbox.

local MAX_BATCH, collect, event, executor_name = core.MAX_BATCH, core.collect, core.event, core.executor_name
local go_on_after_failures, publish = core.go_on_after_failures, core.publish
local verb, worker_name, worker_of = core.verb, core.worker_name, core.worker_of
local ALONE, load_job, with = core.ALONE, core.load_job, core.with
local settle = core.settle
local wake = core.wake
local charge_crash, charge_lost, come_back, end_attempt = core.charge_crash, core.charge_lost, core.come_back, core.end_attempt
local holder, parse_marks = core.holder, core.parse_marks

local function lose_job(executor, id, attempt, charge, reason)
  local job, run = holder(executor, id, attempt)
  if not job then return collect(dropping, key.held(executor), id) end
  if charge == 'lost' then return charge_lost(job, run, reason) end
  if charge == 'crash' then return charge_crash(job, nil, end_attempt(job, run, 'K', reason)) end
  job.flags, job.misses = with(job.flags, ALONE, true), 0
  event('released', job.id)
  come_back(job, 0, end_attempt(job, run, 'R', reason))
end

local function lose_executor(executor, args, lost)
  local held = redis.call('HGETALL', key.held(executor))
  local charge = args.worker and 'lost' or (#held == 2 and 'crash' or 'none')
  local most = #held / 2 == MAX_BATCH + 1 and MAX_BATCH - 1 or MAX_BATCH -- of several, none may be left to look like the only one
  local place = -1
  go_on_after_failures(function()
    while place + 2 < #held and #lost < most do
      place = place + 2
      lost[#lost + 1] = held[place]
      lose_job(executor, held[place], parse_marks(held[place + 1]), charge, args.reason)
    end
  end, function() collect(dropping, key.held(executor), held[place]) end) -- its lease ends
  settle()
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

verb('requeue_orphaned', { 'allow-oom' }, function(args)
  local executors, lost = { args.executor }, {}
  if args.worker then
    worker_name(args.worker)
    executors = executors_of(args.worker)
  else
    executor_name(args.executor)
  end
  for _, executor in ipairs(executors) do lose_executor(executor, args, lost) end
  settle()
  if args.worker and #lost == 0 then
    redis.call('DEL', key.worker(args.worker), key.inbox(args.worker))
    redis.call('ZREM', key.workers(), args.worker)
    redis.call('SREM', key.matchers(), args.worker)
  end
  local queues = {}
  for _, id in ipairs(lost) do
    local job = load_job(id)
    if job and job.state == 'waiting' then queues[job.queue] = true end
  end
  for queue in pairs(queues) do wake(queue) end
  publish(args.executor or args.worker)
  return lost
end)

core.executors_of = executors_of
