-- detach: transfer a lease to an executor that is not a process, so that any program that knows its name can renew it.
--
--   args.executor, args.id, args.attempt   the attempt
--   args.created    when the job was created, according to its claim
--   args.to         the new executor, detached/<name>.<number>, with a unique name
--
-- Errors: LOST, INVALID. The lease starts over, and the executor that claimed the job loses it. Returns 1 if cancellation was
-- requested, else 0; a repeated call returns the same.

local CANCELLING, attempt_field, check_executor = core.CANCELLING, core.attempt_field, core.check_executor
local check_id, check_integer, has, load_held = core.check_id, core.check_integer, core.has, core.load_held
local pack_attempt, pack_hold, refuse, register = core.pack_attempt, core.pack_hold, core.refuse, core.register

local function check_detach(args)
  check_executor(args.executor)
  check_executor(args.to)
  check_id(args.id)
  check_integer(args.attempt, 'the attempt', 1, 2 ^ 31)
  if string.sub(args.to, 1, 9) ~= 'detached/' then
    refuse('INVALID', 'expected `to` as detached/<name>.<number>, got ' .. args.to)
  end
end

-- The record names the executor of the attempt; the holds of both executors follow.
local function transfer_lease(job, run, to)
  local packed = pack_attempt(run.claimed, run.waited, run.delay, run.ran, run.pid, run.outcome, to)
  redis.call('HSET', key.job(job.id), attempt_field[job.attempt], packed)
  redis.call('HDEL', key.held(run.executor), job.id)
  redis.call('HSET', key.held(to), job.id, pack_hold(job.attempt, has(job.flags, CANCELLING), 0, job.lease))
  redis.call('ZADD', key.timers, now + job.lease, job.id)
end

register('detach', { 'allow-oom' }, function(args)
  check_detach(args)
  local job, run = load_held(args.executor, args.id, args.attempt, args.created)
  if job then
    transfer_lease(job, run, args.to)
  else
    job = load_held(args.to, args.id, args.attempt, args.created) -- a repeated call
    if not job then
      refuse('LOST', string.format('attempt %d of job %s has lost its lease: it was not detached', args.attempt, args.id))
    end
  end
  return has(job.flags, CANCELLING) and 1 or 0
end)
