-- each: verbs that do the same to each of some jobs.
--
-- `action` has what is done to one job, by name: called with its id and the arguments of the call, it returns the answer about
-- it; `check_action` what is to be checked of the arguments before. See bulk.lua for all jobs of a kind.

local loop_despite_errors, check_ids, publish_events = core.loop_despite_errors, core.check_ids, core.publish_events
local refuse, register = core.refuse, core.register
local flush = core.flush

local action, check_action = {}, {}

-- An answer in capital letters, but OK, says that nothing was done.
local function changed_nothing(answer) return answer ~= 'OK' and not string.find(answer, '%l') end

local function check_reason(args)
  if type(args.reason or '') ~= 'string' then refuse('INVALID', '`reason` must be a text') end
end

local function apply_to_each(words, args, ids)
  local answers, is_unchanged, at = {}, true, 0
  loop_despite_errors(function()
    while at < #ids do
      at = at + 1
      answers[at] = action[words](ids[at], args)
      is_unchanged = is_unchanged and changed_nothing(answers[at])
      flush()
    end
  end, function() answers[at] = 'DAMAGED' end)
  return answers, is_unchanged
end

local function register_action(words, flags)
  register(words, flags, function(args)
    local ids = check_ids(args.ids)
    if check_action[words] then check_action[words](args) end
    local answers, is_unchanged = apply_to_each(words, args, ids)
    publish_events()
    return answers, is_unchanged
  end)
end

core.action, core.check_action, core.check_reason, core.apply_to_each = action, check_action, check_reason, apply_to_each
core.register_action = register_action
