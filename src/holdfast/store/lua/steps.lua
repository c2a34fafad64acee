-- steps: results of the steps of a job, which later attempts do not repeat.
--
-- once: return the stored result of a step, or store a new one.
--
--   args.executor, args.id, args.attempt   the attempt
--   args.created    when the job was created, according to its claim
--   args.step       name of the step
--   blobs           the result of the step, if it was just executed
--
-- Errors: LOST, TOOBIG, INVALID. Without a result, returns the stored one, or nil. With one, stores and returns it, unless one is
-- stored already, which is returned instead.
--
--   steps   hash per job: step -> result; deleted with the job, or when the job advances to another call

local check_executor, check_id, check_integer = core.check_executor, core.check_id, core.check_integer
local check_name, load_held, mark_extra, refuse = core.check_name, core.load_held, core.mark_extra, core.refuse
local register = core.register

local MAX_STEPS, MAX_STEP_RESULT = 1000, constants.MAX_STEP_RESULT

local function check_once(args, result)
  check_executor(args.executor)
  check_id(args.id)
  check_integer(args.attempt, 'the attempt', 1, 2 ^ 31)
  check_name(args.step, 'a step', constants.MAX_NAME, '%w._:@/%-')
  if result and #result > MAX_STEP_RESULT then
    refuse('TOOBIG', string.format('the result of step %s is %d bytes (limit %d); return a reference', args.step, #result,
      MAX_STEP_RESULT))
  end
  local job = load_held(args.executor, args.id, args.attempt, args.created)
  if not job then
    refuse('LOST', string.format('attempt %d of job %s has lost its lease: step %s was not saved', args.attempt, args.id, args.step))
  end
  return job
end

register('once', { 'allow-oom' }, function(args, blobs)
  local job = check_once(args, blobs[2])
  local known = redis.call('HGET', key.steps(args.id), args.step)
  if known then return known end
  if redis.call('HLEN', key.steps(args.id)) >= MAX_STEPS then -- report this before the step is executed
    refuse('TOOBIG', string.format('job %s already has %d steps (the limit): combine some', args.id, MAX_STEPS))
  end
  if not blobs[2] then return nil end
  mark_extra(job)
  redis.call('HSET', key.steps(args.id), args.step, blobs[2])
  return blobs[2]
end)
