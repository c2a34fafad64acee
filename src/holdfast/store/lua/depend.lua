-- depend: add or remove dependencies of a job that has not started.
--
--   args.id          the job
--   args.add         ids of new dependencies
--   args.remove      ids of dependencies to remove
--   args.on_failed   the policy if one fails or is cancelled (default: unchanged); see enqueue.lua
--   args.token       see call.lua
--
-- Errors: NOTFOUND; STATE if the job is running or has ended; CYCLE; INVALID. Returns the job's state, and its number of unmet
-- dependencies.

local AFTER, FINAL, LIMITED, add_note = core.AFTER, core.FINAL, core.LIMITED, core.add_note
local check_distinct_ids = core.check_distinct_ids
local check_id, dependencies, flush, has, limits = core.check_id, core.dependencies, core.flush, core.has, core.limits
local note_wait, pack_status = core.note_wait, core.pack_status
local publish_events, refuse = core.publish_events, core.refuse
local register, require_dependency = core.register, core.require_dependency
local require_job, reserve_arrivals = core.require_job, core.reserve_arrivals
local with = core.with
local MAX_BATCH = constants.MAX_BATCH

-- The resulting dependencies, without removed ones, whose ids may have been reused.
local function all_waited_for(args)
  local ids, removed = {}, {}
  for _, id in ipairs(args.remove or {}) do removed[id] = true end
  for _, id in ipairs(redis.call('HKEYS', key.after(args.id))) do
    if not removed[id] then ids[#ids + 1] = id end
  end
  for _, id in ipairs(args.add or {}) do ids[#ids + 1] = id end
  return ids
end

local function check_depend(args)
  local job, field = require_job(check_id(args.id), 'b')
  if job.state == 'running' or FINAL[job.state] then
    refuse('STATE', 'job ' .. args.id .. ' is ' .. job.state .. ': dependencies can change only before a job starts')
  end
  if args.on_failed and not dependencies.LETTER_OF_POLICY[args.on_failed] then
    refuse('INVALID', "`on_failed` must be 'block', 'cancel' or 'run'")
  end
  local known = {}
  for _, id in ipairs(check_distinct_ids(args.add or {}, 'add', 0)) do known[id] = require_dependency(check_id(id)) end
  check_distinct_ids(args.remove or {}, 'remove', 0)
  if redis.call('HLEN', key.after(args.id)) + #(args.add or {}) > MAX_BATCH then
    refuse('INVALID', string.format('job %s would have more than %d dependencies', args.id, MAX_BATCH))
  end
  local is_cycle = dependencies.is_cycle(args.id, all_waited_for(args))
  if is_cycle then refuse('CYCLE', 'job ' .. args.id .. ' would wait for itself') end
  if is_cycle == nil then refuse('INVALID', 'there are too many indirect dependencies to check for cycles') end
  return job, field, known
end

-- Returns the number of unmet dependencies, and whether the job must be cancelled because of one.
local function relink(job, args, known, policy)
  local last, left, is_doomed = 0, 0, false
  for _, id in ipairs(args.remove or {}) do
    redis.call('HDEL', key.after(job.id), id)
    redis.call('ZREM', key.dependents(id), job.id)
  end
  local marks = redis.call('HGETALL', key.after(job.id))
  for at = 1, #marks, 2 do
    last = math.max(last, (dependencies.parse_edge(marks[at + 1])))
    if known[marks[at]] == nil then
      local wrong, letter = dependencies.relink(job.id, marks[at], marks[at + 1], policy, job.state == 'blocked')
      left, is_doomed = left + wrong, is_doomed or (wrong == 1 and letter ~= '-')
    end
  end
  for _, id in ipairs(args.add or {}) do
    last = last + 1
    local wrong, letter = dependencies.link_known(job.id, reserve_arrivals(1) + 1, id, known[id], last, policy)
    left, is_doomed = left + wrong, is_doomed or (wrong == 1 and letter ~= '-')
  end
  return left, is_doomed and policy == 'c'
end

-- What a call changes, for the history; a long list is truncated.
local function describe_change(args)
  local parts = {}
  for verb, ids in pairs({ ['not on '] = args.remove or {}, ['on '] = args.add or {} }) do
    if #ids > 0 then parts[#parts + 1] = verb .. table.concat(ids, ', ') end
  end
  table.sort(parts) -- those that are removed first
  if args.on_failed then parts[#parts + 1] = 'if one fails: ' .. args.on_failed end
  return table.concat(parts, '; ')
end

register('depend', {}, function(args)
  local job, field, known = check_depend(args)
  local _, policy, due = dependencies.parse_field(field or '0 b 0')
  if job.state == 'scheduled' then due = tonumber(redis.call('ZSCORE', key.timers, job.id)) end
  policy = args.on_failed and dependencies.LETTER_OF_POLICY[args.on_failed] or policy
  job.flags = with(job.flags, AFTER, true)
  note_wait(job)
  local change = describe_change(args)
  if change ~= '' then add_note(job, 'D', change) end
  local left, is_doomed = relink(job, args, known, policy)
  local fields = { 'b', dependencies.pack_field(left, policy, due) }
  if is_doomed then
    dependencies.cancel_doomed(job, fields)
  elseif left > 0 and job.state ~= 'blocked' then
    if has(job.flags, LIMITED) then limits.leave(job) end
    dependencies.to_blocked(job, fields)
  else
    redis.call('HSET', key.job(job.id), 's', pack_status(job), unpack(fields))
    if left == 0 and job.state == 'blocked' then dependencies.unblock(job, due) end
  end
  flush()
  publish_events()
  return { job.state, left }
end)
