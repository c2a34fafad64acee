-- actions: functions that do the same to each of some jobs.
--
-- `action[name](id, args)` acts on one job and returns its answer; `check_action[name](args)` checks the arguments before.
-- `bulk` applies actions to all jobs that match a filter.

local check_ids, flush, loop_despite_errors = core.check_ids, core.flush, core.loop_despite_errors
local publish_events, refuse, register = core.publish_events, core.refuse, core.register

local action, check_action = {}, {}

-- Answers in capital letters, except OK, mean that nothing was changed.
local function changed_nothing(answer) return answer ~= 'OK' and not string.find(answer, '%l') end

local function check_reason(args)
  if type(args.reason or '') ~= 'string' then refuse('INVALID', '`reason` must be text') end
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
core.apply_to_each, core.register_action = apply_to_each, register_action
