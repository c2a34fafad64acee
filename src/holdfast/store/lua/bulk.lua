-- act: do the same to all jobs that are of some kind, in bounded steps.
--
--   args.action     cancel, retry, delete, move, release, fail; or count, which does nothing
--   args.queues, states, limit, cursor    over which jobs to walk, and how many of them to look at (100): see list.lua
--   args.task, group                      only those of this task; that failed with this group
--   args.since      only those that are in their state since then or longer; not given: since now. Whoever goes on says the
--                   time that the first call returned: else jobs that come back would be met again
--   args.with       further arguments of the action
--   args.token      see call.lua
--
-- Returns the cursor (empty: that was all), the time, how many jobs were looked at, and a list of answer, count, answer,
-- count ... as the action answers.

local loop_despite_errors, check_optional, publish_events = core.loop_despite_errors, core.check_optional, core.publish_events
local refuse, register = core.refuse, core.register
local INLINE, truncate, load_job = core.INLINE, core.truncate, core.load_job
local flush = core.flush
local check_walk, walk = core.check_walk, core.walk
local action, check_action = core.action, core.check_action

local ACTIONS = { cancel = true, retry = true, delete = true, move = true, release = true, fail = true, count = true }

-- One that cannot be read is meant if nothing has to be read for that.
local function matches(args, since, id)
  local job, group = load_job(id, 'g')
  if not job then return group ~= 'NOTFOUND' and not args.task and not args.group end
  return job.since <= since and (not args.task or job.task == args.task) and (not args.group or group == args.group)
end

local function check_act(args)
  if not ACTIONS[args.action] then refuse('INVALID', 'unknown action ' .. tostring(args.action)) end
  if check_action[args.action] then check_action[args.action](args.with or {}) end
  check_optional(args.since, '`since`', 0, 2 ^ 52)
  if type(args.group or '') ~= 'string' then refuse('INVALID', '`group` must be a text') end
  args.group = args.group and truncate(args.group, INLINE) -- as records have it
  return check_walk(args)
end

register('bulk', { 'allow-oom' }, function(args)
  local most, since = check_act(args), math.min(args.since or now, now)
  local ids, cursor = walk(args, most)
  local counts, reply, is_unchanged, at = {}, {}, true, 0
  local function count(answer) counts[answer] = (counts[answer] or 0) + 1 end
  loop_despite_errors(function()
    while at < #ids do
      at = at + 1
      if matches(args, since, ids[at]) then
        count(args.action == 'count' and 'OK' or action[args.action](ids[at], args.with or {}))
        is_unchanged = is_unchanged and args.action == 'count'
        flush()
      end
    end
  end, function() count('DAMAGED') end)
  for answer, count in pairs(counts) do reply[#reply + 1], reply[#reply + 2] = answer, count end
  publish_events()
  return { cursor, since, #ids, reply }, is_unchanged
end)
