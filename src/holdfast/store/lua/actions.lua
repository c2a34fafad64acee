-- actions: functions that do the same to each of some jobs.
--
-- `action[name](id, args)` acts on one job and returns its answer; `check_action[name](args)` checks the arguments before.
-- operations.lua applies actions to all jobs that match a filter.

local FINAL, NO_EXECUTOR, check_ids = core.FINAL, core.NO_EXECUTOR, core.check_ids
local current_attempt, end_attempt, flush = core.current_attempt, core.end_attempt, core.flush
local load_job, loop_despite_errors, publish_events = core.load_job, core.loop_despite_errors, core.publish_events
local refuse, register, send_message, worker_of = core.refuse, core.register, core.send_message, core.worker_of

local action, check_action = {}, {}

-- Answers in capital letters, except OK, mean that nothing was changed.
local function changed_nothing(answer) return answer ~= 'OK' and not string.find(answer, '%l') end

local function check_reason(args)
  if type(args.reason or '') ~= 'string' then refuse('INVALID', '`reason` must be text') end
end

-- An action on jobs that have not ended.
local function unless_final(change)
  return function(id, args)
    local job, waiters = load_job(id, 'w')
    if not job then return waiters end -- NOTFOUND, NEWER or DAMAGED
    return FINAL[job.state] and 'STATE' or change(job, args, waiters)
  end
end

-- End the attempt of a running job, and have its worker stop it. Returns the fields to write with the job's move.
local function stop_attempt(job, letter, reason)
  local run = current_attempt(job)
  if run.executor ~= NO_EXECUTOR then
    send_message(worker_of(run.executor), string.format('lost %s %s %d', run.executor, job.id, job.attempt))
  end
  return end_attempt(job, run, letter, reason)
end

local function apply_to_each(name, args, ids)
  local answers, is_unchanged, at = {}, true, 0
  loop_despite_errors(function()
    while at < #ids do
      at = at + 1
      answers[at] = action[name](ids[at], args)
      is_unchanged = is_unchanged and changed_nothing(answers[at])
      flush()
    end
  end, function() answers[at] = 'DAMAGED' end)
  return answers, is_unchanged
end

local function register_action(name, flags)
  register(name, flags, function(args)
    local ids = check_ids(args.ids)
    if check_action[name] then check_action[name](args) end
    local answers, is_unchanged = apply_to_each(name, args, ids)
    publish_events()
    return answers, is_unchanged
  end)
end

core.action, core.check_action, core.check_reason = action, check_action, check_reason
core.apply_to_each, core.register_action, core.unless_final = apply_to_each, register_action, unless_final
core.stop_attempt = stop_attempt
