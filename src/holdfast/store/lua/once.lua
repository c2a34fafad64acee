-- once: steps of a job that are not done again by a later attempt.
--
--   once(executor, id, attempt, created, step), blobs: the step's result, if it was done just now
--
-- Refuses LOST, TOOBIG, INVALID. Without a result: returns the one that is kept, or nothing. With one: keeps it, and returns
-- it; if one is kept already, that.
--
--   steps   hash per job: step -> result. It stays as long as the job, and goes when the job goes on as another call

local executor_name, integer, job_id, name, refuse = core.executor_name, core.integer, core.job_id, core.name, core.refuse
local verb = core.verb
local mark_extra = core.mark_extra
local holder = core.holder

local MOST_STEPS, MAX_STEP_RESULT = 1000, constants.MAX_STEP_RESULT

local function check_once(args, result)
  executor_name(args.executor)
  job_id(args.id)
  integer(args.attempt, 'the attempt', 1, 2 ^ 31)
  name(args.step, 'a step', constants.MAX_NAME, '%w._:@/%-')
  if result and #result > MAX_STEP_RESULT then
    refuse('TOOBIG', string.format('the result of step %s has %d bytes; %d are allowed: keep a reference', args.step, #result,
      MAX_STEP_RESULT))
  end
  local job = holder(args.executor, args.id, args.attempt, args.created)
  if not job then
    refuse('LOST', string.format('attempt %d of job %s has lost its lease: step %s is not kept', args.attempt, args.id, args.step))
  end
  return job
end

verb('once', { 'allow-oom' }, function(args, blobs)
  local job = check_once(args, blobs[2])
  local known = redis.call('HGET', key.steps(args.id), args.step)
  if known then return known end
  if redis.call('HLEN', key.steps(args.id)) >= MOST_STEPS then -- said before it is done, not after
    refuse('TOOBIG', string.format('job %s has %d steps already: one step may do several things', args.id, MOST_STEPS))
  end
  if not blobs[2] then return nil end
  mark_extra(job)
  redis.call('HSET', key.steps(args.id), args.step, blobs[2])
  return blobs[2]
end)
