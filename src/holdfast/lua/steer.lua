-- steer: what an operator does to jobs: move, release, fail.
--
--   args.ids        up to 1,000
--   args.queue      move: to this queue, as if it came just now
--   args.priority   move: with this priority; without a queue it keeps its place among its equals
--   args.delay      release: milliseconds until it is due again
--   args.group      fail: the group of the failure ('operator')
--   args.reason     release, fail: why, in words
--   args.token      see call.lua
--
-- move changes jobs that have not ended; of a running one the priority only. release gives running jobs back, uncharged; fail
-- ends jobs that have not ended. Their worker stops what runs. Return an answer per id: the job's new state, NOTFOUND, or
-- STATE.

local function each(args, do_one)
  local answers, is_idle = {}, true
  for place, id in ipairs(job_ids(args.ids)) do
    local job, waiters = load_job(id, 'w')
    answers[place] = not job and 'NOTFOUND' or FINAL[job.state] and 'STATE' or do_one(job, waiters)
    is_idle = is_idle and (answers[place] == 'NOTFOUND' or answers[place] == 'STATE')
    settle()
  end
  publish()
  return answers, is_idle
end

-- Leave the place in a queue, and stand in another.
local function change_queue(job, queue)
  local state, timer = job.state, nil
  if state == 'scheduled' then timer = tonumber(redis.call('ZSCORE', key.timers(), job.id)) end
  if has(job.flags, LIMITED) then limit.leave(job) end
  collect(leaving, key.index(job.queue, state), job.id)
  job.queue, job.state = queue, nil
  arrive(job)
  know_queue(queue)
  if timer then return to_scheduled(job, timer) end
  if state == 'blocked' then return after.to_blocked(job) end
  to_waiting(job)
  awakened[queue] = true
end

local function change_priority(job)
  if job.state == 'waiting' then return to_waiting(job) end
  if job.state == 'throttled' then
    limit.unpark(job)
    to_waiting(job)
    awakened[job.queue] = true
  end
end

local function move_job(args, job)
  local queue = args.queue or job.queue
  if job.state == 'running' and queue ~= job.queue then return 'STATE' end
  job.priority = args.priority or job.priority
  local head = redis.call('HGET', key.job(job.id), 'h')
  redis.call('HSET', key.job(job.id), 'h', change_head(head, { queue = queue, priority = job.priority }))
  if queue ~= job.queue then change_queue(job, queue) else change_priority(job) end
  event('moved', job.id)
  return job.state
end

verb('move', {}, function(args)
  if args.queue then queue_name(args.queue) end
  optional(args.priority, 'the priority', -256, 255)
  if not args.queue and not args.priority then refuse('INVALID', 'say to which queue, or which priority') end
  return each(args, function(job) return move_job(args, job) end)
end)

-- End the attempt of a running job, and have its worker stop it. Returns the fields to write with its move.
local function take_away(job, letter, reason)
  local run = unpack_attempt(redis.call('HGET', key.job(job.id), 'a' .. string.format('%d', job.attempt)))
  tell(worker_of(run.executor), string.format('lost %s %s %d', run.executor, job.id, job.attempt))
  return end_attempt(job, run, letter, reason)
end

verb('release', { 'allow-oom' }, function(args)
  integer(args.delay or 0, 'the delay', 0, LONGEST_WAIT)
  return each(args, function(job)
    if job.state ~= 'running' then return 'STATE' end
    event('released', job.id)
    come_back(job, args.delay or 0, take_away(job, 'R', args.reason))
    awakened[job.queue] = true
    return job.state
  end)
end)

verb('fail', { 'allow-oom' }, function(args)
  return each(args, function(job, waiters)
    local fields = job.state == 'running' and take_away(job, 'E', args.reason) or {}
    note(job, 'F', args.reason)
    fail(job, args.group or 'operator', waiters, fields)
    return 'failed'
  end)
end)
