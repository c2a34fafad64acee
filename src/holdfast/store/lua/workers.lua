-- workers: list workers, latest heartbeat first. deregister: forget a worker that is gone.
--
--   workers(since; default: all)   for each: worker, last heartbeat, whether it is live, its queues, its description, and the jobs
--                                  that it holds: executor, id, attempt, queue, task, process id, claim time; up to 10,000
--                                  in total
--   deregister(worker)             Errors: NOWORKER, STATE if it is live or holds jobs: their leases must expire first

local check_worker, executors_of, load_held = core.check_worker, core.executors_of, core.load_held
local parse_hold, refuse, register = core.parse_hold, core.refuse, core.register
local HEARTBEAT_TIMEOUT, MAX_BATCH = constants.HEARTBEAT_TIMEOUT, constants.MAX_BATCH

local function hold_of(executor, id, marks)
  local attempt = parse_hold(marks)
  local job, run = load_held(executor, id, attempt)
  if job then return executor, id, attempt, job.queue, job.task, run.pid, run.claimed end
end

local function held_by(worker, left)
  local jobs = {}
  for _, executor in ipairs(executors_of(worker)) do
    local held = redis.call('HGETALL', key.held(executor))
    for place = 1, math.min(#held, 2 * left), 2 do
      for _, value in ipairs({ hold_of(executor, held[place], held[place + 1]) }) do jobs[#jobs + 1] = value end
    end
    left = math.max(0, left - #held / 2)
  end
  return jobs, left
end

register('workers', { 'no-writes' }, function(args)
  local reply, left, jobs = {}, 10 * MAX_BATCH, nil
  local list = redis.call('ZREVRANGEBYSCORE', key.workers(), '+inf', args.since or '-inf', 'WITHSCORES', 'LIMIT', 0, MAX_BATCH)
  for place = 1, #list, 2 do
    local worker, seen = list[place], tonumber(list[place + 1])
    local fields = redis.call('HMGET', key.worker(worker), 'queues', 'about')
    jobs, left = held_by(worker, left)
    reply[#reply + 1] = { worker, seen, seen >= now - HEARTBEAT_TIMEOUT and 1 or 0, fields[1] or '', fields[2] or '', jobs }
  end
  return reply
end)

register('deregister', { 'allow-oom' }, function(args)
  check_worker(args.worker)
  local seen = redis.call('ZSCORE', key.workers(), args.worker)
  if not seen then refuse('NOWORKER', 'worker ' .. args.worker .. ' does not exist; `holdfast workers` lists them') end
  if tonumber(seen) >= now - HEARTBEAT_TIMEOUT then
    refuse('STATE', string.format('worker %s sent a heartbeat %.0f seconds ago: stop it first; if it is dead, wait until '
      .. '%.0f seconds after its last heartbeat', args.worker, (now - seen) / 1000, HEARTBEAT_TIMEOUT / 1000))
  end
  for _, executor in ipairs(executors_of(args.worker)) do
    if redis.call('EXISTS', key.held(executor)) == 1 then
      refuse('STATE', 'worker ' .. args.worker .. ' holds jobs: wait until their leases expire')
    end
  end
  redis.call('DEL', key.worker(args.worker), key.inbox(args.worker))
  redis.call('ZREM', key.workers(), args.worker)
  redis.call('SREM', key.matchers(), args.worker)
  return 'OK'
end)
