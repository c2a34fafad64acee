-- each: verbs that do the same to each of some jobs.
--
-- `action` has what is done to one job, by name: called with its id and the arguments of the call, it returns the answer about
-- it; `check_action` what is to be checked of the arguments before. See act.lua for all jobs of a kind.

local go_on_after_failures, job_ids, publish = core.go_on_after_failures, core.job_ids, core.publish
local refuse, verb = core.refuse, core.verb
local settle = core.settle

local action, check_action = {}, {}

-- An answer in capital letters, but OK, says that nothing was done.
local function did_nothing(answer) return answer ~= 'OK' and not string.find(answer, '%l') end

local function check_reason(args)
  if type(args.reason or '') ~= 'string' then refuse('INVALID', '`reason` must be a text') end
end

local function do_to_each(words, args, ids)
  local answers, is_idle, at = {}, true, 0
  go_on_after_failures(function()
    while at < #ids do
      at = at + 1
      answers[at] = action[words](ids[at], args)
      is_idle = is_idle and did_nothing(answers[at])
      settle()
    end
  end, function() answers[at] = 'DAMAGED' end)
  return answers, is_idle
end

local function verb_on_each(words, flags)
  verb(words, flags, function(args)
    local ids = job_ids(args.ids)
    if check_action[words] then check_action[words](args) end
    local answers, is_idle = do_to_each(words, args, ids)
    publish()
    return answers, is_idle
  end)
end

core.action, core.check_action, core.check_reason, core.do_to_each = action, check_action, check_reason, do_to_each
core.verb_on_each = verb_on_each
