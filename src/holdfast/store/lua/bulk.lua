-- bulk: apply an action to all jobs that match a filter, in bounded steps.
--
--   args.action     cancel, retry, delete, move, release, fail, tag, untag, track, untrack; or count, which changes nothing
--   args.queues, states, limit, cursor    which jobs to visit, and how many per call (100): see list.lua
--   args.task, group, fingerprint         only jobs of this task; that failed with this group or fingerprint
--   args.since      only jobs that have been in their state since then (default: now). Later calls pass the time that the first
--                   one returned, or requeued jobs would be visited again
--   args.with       further arguments of the action
--   args.token      see call.lua
--
-- Errors: INVALID. Returns the cursor (empty: done), the time, how many jobs were visited, and a list of answer, count, answer,
-- count ... with the answers of the action.

local action, check_action, check_optional = core.action, core.check_action, core.check_optional
local check_walk, flush, load_job = core.check_walk, core.flush, core.load_job
local loop_despite_errors, publish_events, refuse = core.loop_despite_errors, core.publish_events, core.refuse
local register, walk = core.register, core.walk

local ACTIONS = { cancel = true, retry = true, delete = true, move = true, release = true, fail = true, tag = true, untag = true, track = true, untrack = true, count = true }

-- An unreadable job matches if no filter has to read it.
local function matches(args, since, id)
  local job, group, fingerprint = load_job(id, 'g', 'v')
  if not job then return group ~= 'NOTFOUND' and not args.task and not args.group and not args.fingerprint end
  return job.since <= since and (not args.task or job.task == args.task) and (not args.group or group == args.group)
    and (not args.fingerprint or fingerprint == args.fingerprint)
end

local function check_act(args)
  if not ACTIONS[args.action] then refuse('INVALID', 'unknown action ' .. tostring(args.action)) end
  if check_action[args.action] then check_action[args.action](args.with or {}) end
  check_optional(args.since, '`since`', 0, 2 ^ 52)
  if type(args.group or '') ~= 'string' then refuse('INVALID', '`group` must be text') end
  if type(args.fingerprint or '') ~= 'string' then refuse('INVALID', '`fingerprint` must be text') end
  args.group = args.group and core.failures.clean_group(args.group) -- as records store it
  return check_walk(args)
end

register('bulk', { 'allow-oom' }, function(args)
  local max, since = check_act(args), math.min(args.since or now, now)
  local ids, cursor = walk(args, max)
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
