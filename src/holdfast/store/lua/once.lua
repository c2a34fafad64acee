-- once: steps of a job that are not done again by a later attempt.
--
--   once(executor, id, attempt, created, step), blobs: the step's result, if it was done just now
--
-- Refuses LOST, TOOBIG, INVALID. Without a result: returns the one that is kept, or nothing. With one: keeps it, and returns
-- it; if one is kept already, that.
--
--   steps   hash per job: step -> result. It stays as long as the job, and goes when the job goes on as another call

local check_executor, check_integer, check_id, check_name, refuse = core.check_executor, core.check_integer, core.check_id, core.check_name, core.refuse
local register = core.register
local mark_extra = core.mark_extra
local load_held = core.load_held

local MAX_STEPS, MAX_STEP_RESULT = 1000, constants.MAX_STEP_RESULT

local function check_once(args, result)
  check_executor(args.executor)
  check_id(args.id)
  check_integer(args.attempt, 'the attempt', 1, 2 ^ 31)
  check_name(args.step, 'a step', constants.MAX_NAME, '%w._:@/%-')
  if result and #result > MAX_STEP_RESULT then
    refuse('TOOBIG', string.format('the result of step %s has %d bytes; %d are allowed: keep a reference', args.step, #result,
      MAX_STEP_RESULT))
  end
  local job = load_held(args.executor, args.id, args.attempt, args.created)
  if not job then
    refuse('LOST', string.format('attempt %d of job %s has lost its lease: step %s is not kept', args.attempt, args.id, args.step))
  end
  return job
end

register('once', { 'allow-oom' }, function(args, blobs)
  local job = check_once(args, blobs[2])
  local known = redis.call('HGET', key.steps(args.id), args.step)
  if known then return known end
  if redis.call('HLEN', key.steps(args.id)) >= MAX_STEPS then -- said before it is done, not after
    refuse('TOOBIG', string.format('job %s has %d steps already: one step may do several things', args.id, MAX_STEPS))
  end
  if not blobs[2] then return nil end
  mark_extra(job)
  redis.call('HSET', key.steps(args.id), args.step, blobs[2])
  return blobs[2]
end)
