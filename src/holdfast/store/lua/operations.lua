-- operations: act on all jobs that match a filter, in bounded steps.
--
--   start_operation(id, action, with, filter)
--     id       1 to 40 letters and digits, chosen by the caller: the same call again changes nothing
--     action   cancel, retry, delete, move, release, fail, tag, untag, track or untrack
--     with     further arguments of the action
--     filter   see filters.lua; also, only jobs that have been in their state since the start
--   continue_operation(id, step, limit)
--     step     how many steps were done: a call with another number changes nothing
--     limit    maximum number of jobs to act on (default: as many as one call may)
--   stop_operation(id), resume_operation(id)
--   operations(ids; default: all, the latest first)
--
-- Errors: INVALID, also if this release does not know the action or a filter of an operation that another one started;
-- NOOPERATION; STATE if too many are running. All return operations: a list of names and values each, with the counts of
-- answers under `n:` and the answer.
--
-- An operation lives in the store. One step acts on jobs and moves the cursor in the same call, so its counts are exact
-- even if its driver is killed, or repeats a call. If it has not been driven for OPERATION_TIMEOUT, the calls that advance
-- time do, a smaller step each. If this release cannot, it tries again after OPERATION_TIMEOUT, and the call goes on.
--
-- Each job is acted on once: what an action changes has been in its state since now, so it no longer matches. While the clock
-- shows the time of the start or an earlier one, the time does not show this, and a set has the ids instead. Actions that leave
-- jobs in their state and in their place, such as `tag`, meet each of them once anyway.
--
-- The MAX_OPERATIONS that were done or stopped last are kept, besides those that run, and none that does not run for longer
-- than OPERATION_TTL after its start.

local action, check_action, check_integer, check_name = core.action, core.check_action, core.check_integer, core.check_name
local check_list, is_refusal = core.check_list, core.is_refusal
local check_optional, filters, find, flush = core.check_optional, core.filters, core.find, core.flush
local loop_despite_errors, publish_events, refuse = core.loop_despite_errors, core.publish_events, core.refuse
local register, set_marker = core.register, core.set_marker
local MAX_BATCH, MAX_OPERATIONS = constants.MAX_BATCH, constants.MAX_OPERATIONS
local OPERATION_TIMEOUT, OPERATION_TTL = constants.OPERATION_TIMEOUT, constants.OPERATION_TTL

local ACTIONS = {
  cancel = true, retry = true, delete = true, move = true, release = true, fail = true, tag = true, untag = true, track = true,
  untrack = true,
}
local ACTION_COST, STEP_BUDGET, SHARE_BUDGET = 20, 800, 600 -- see find.lua; the last is what a call may spend that advances time
local PAUSE = 20 -- milliseconds between two steps of calls that advance time

local function check_operation_id(id) return check_name(id, 'the id of an operation', 40, '%w') end

local NUMBERS = { 'started', 'updated', 'steps', 'looked', 'total' }

local function is_json(text) return type(text) == 'string' and (pcall(cjson.decode, text)) end

local function is_whole(fields)
  for _, name in ipairs(NUMBERS) do
    if not string.find(fields[name] or '', '^%-?%d+$') then return false end
  end
  for name, value in pairs(fields) do
    if string.sub(name, 1, 2) == 'n:' and not string.find(value, '^%d+$') then return false end
  end
  return fields.state and fields.action and fields.who and fields.cursor and is_json(fields.filter) and is_json(fields.with)
end

-- Returns the fields of an operation, or nil if it does not exist or is damaged.
local function find_operation(id)
  local list, fields = redis.call('HGETALL', key.operation(id)), {}
  for place = 1, #list, 2 do fields[list[place]] = list[place + 1] end
  return is_whole(fields) and fields or nil
end

local function load_operation(id)
  local operation = find_operation(check_operation_id(id))
  if not operation then
    refuse('NOOPERATION', 'operation ' .. id .. ' does not exist; the last ' .. MAX_OPERATIONS .. ' are kept')
  end
  return operation
end

local function describe_operation(id) return { 'id', id, unpack(redis.call('HGETALL', key.operation(id))) } end

local function update_marker()
  local is_running = redis.call('EXISTS', key.operating()) == 1
  if is_running ~= (markers.operations ~= nil) then set_marker('operations', is_running and 1 or nil) end
end

local function forget_operation(id)
  redis.call('UNLINK', key.operation(id), key.acted(id))
  redis.call('ZREM', key.operations(), id)
end

-- Those that do not run, except `latest`, in the order in which they were done or stopped.
local function ended_operations(latest)
  local ended = {}
  for place, id in ipairs(redis.call('ZRANGE', key.operations(), 0, -1)) do
    if id ~= latest and not redis.call('ZSCORE', key.operating(), id) then
      ended[#ended + 1] = { id = id, place = place, time = tonumber(redis.call('HGET', key.operation(id), 'updated') or '') or 0 }
    end
  end
  table.sort(ended, function(one, other)
    if one.time ~= other.time then return one.time < other.time end
    return one.place < other.place
  end)
  return ended
end

-- Forget those that were done or stopped first, beyond the number that is kept. `latest` was now.
local function trim_operations(latest)
  local excess = redis.call('ZCARD', key.operations()) - redis.call('ZCARD', key.operating()) - MAX_OPERATIONS
  if excess <= 0 then return end
  for place, each in ipairs(ended_operations(latest)) do
    if place <= excess then forget_operation(each.id) end
  end
end

-- Forget operations that started long ago, unless they run.
local function expire_operations()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key.operations(), '-inf', now - OPERATION_TTL, 'LIMIT', 0, 2 * MAX_OPERATIONS)) do
    if not redis.call('ZSCORE', key.operating(), id) then forget_operation(id) end
  end
end

local function check_running()
  if redis.call('ZCARD', key.operating()) >= MAX_OPERATIONS then
    refuse('STATE', string.format('%d operations are running: wait for one, or stop one', MAX_OPERATIONS))
  end
end

local function check_known(name)
  if not ACTIONS[name] then refuse('INVALID', 'unknown action ' .. string.sub(tostring(name), 1, 40)) end
end

-- Check the arguments of a start. Returns the query, and the filter as it is stored: with times that do not count from now.
local function check_start(args)
  check_operation_id(args.id)
  check_known(args.action)
  if type(args.with or {}) ~= 'table' then refuse('INVALID', '`with` must be an object') end
  if check_action[args.action] then check_action[args.action](args.with or {}) end
  local query, stored = filters.read(args.filter), {}
  for name, value in pairs(args.filter or {}) do stored[name] = value end
  stored.since, stored['until'] = query.given.since, query.given['until']
  filters.end_at(query, now)
  return query, stored
end

register('start_operation', { 'allow-oom' }, function(args)
  local query, filter = check_start(args)
  local id, operation = args.id, key.operation(args.id)
  if redis.call('EXISTS', operation) == 1 then return { describe_operation(id) } end
  check_running()
  local _, total = find.choose(query)
  total = total or find.by_state.size(query) or -1
  redis.call('HSET', operation, 'action', args.action, 'with', cjson.encode(args.with or {}), 'filter', cjson.encode(filter),
    'who', caller or '', 'state', 'running', 'started', now, 'updated', now, 'steps', 0, 'looked', 0, 'total', total, 'cursor', '')
  redis.call('ZADD', key.operations(), now, id)
  redis.call('ZADD', key.operating(), now + OPERATION_TIMEOUT, id)
  update_marker()
  return { describe_operation(id) }
end)

-- Apply the action to one job. Returns its answer.
local function act(name, id, with)
  local answer, has_begun = nil, false
  loop_despite_errors(function()
    if has_begun then return end
    has_begun = true
    answer = action[name](id, with)
    flush()
  end, function() answer = 'DAMAGED' end)
  return answer
end

-- Returns a function that acts on a job and counts its answer.
local function make_visitor(id, operation, counts)
  local with, is_early = cjson.decode(operation.with), now <= tonumber(operation.started)
  local acted = is_early or redis.call('EXISTS', key.acted(id)) == 1
  return function(job)
    if acted and redis.call('SISMEMBER', key.acted(id), job) == 1 then return 0 end
    local answer = act(operation.action, job, with)
    counts[answer] = (counts[answer] or 0) + 1
    if is_early then redis.call('SADD', key.acted(id), job) end
    return ACTION_COST
  end
end

local function finish_operation(id)
  redis.call('HSET', key.operation(id), 'state', 'done')
  redis.call('UNLINK', key.acted(id))
  redis.call('ZREM', key.operating(), id)
  update_marker()
  trim_operations(id)
end

-- Do one step on behalf of who started it, and have the next one wait for `pause` before calls that advance time do it.
local function take_step(id, operation, limit, spend, pause)
  check_known(operation.action)
  local query, counts, driver = filters.read(cjson.decode(operation.filter)), {}, caller
  filters.end_at(query, tonumber(operation.started))
  caller = operation.who ~= '' and operation.who or nil
  local cursor, search = find.find(query, operation.cursor ~= '' and operation.cursor or nil, limit,
    make_visitor(id, operation, counts), spend)
  for answer, count in pairs(counts) do redis.call('HINCRBY', key.operation(id), 'n:' .. answer, count) end
  redis.call('HINCRBY', key.operation(id), 'looked', search.looked)
  redis.call('HSET', key.operation(id), 'cursor', cursor, 'updated', now, 'steps', tonumber(operation.steps) + 1)
  redis.call('ZADD', key.operating(), 'XX', now + pause, id)
  if cursor == '' then finish_operation(id) end
  publish_events()
  caller = driver
end

register('continue_operation', { 'allow-oom' }, function(args)
  local operation = load_operation(args.id)
  check_integer(args.step, '`step`', 0, 2 ^ 52)
  check_optional(args.limit, 'the limit', 1, MAX_BATCH)
  if operation.state == 'running' and tonumber(operation.steps) == args.step then
    take_step(args.id, operation, args.limit or math.huge, STEP_BUDGET, OPERATION_TIMEOUT)
  end
  return { describe_operation(args.id) }
end)

-- Do a step of the operation that has waited longest, if nobody drives it. Its events are not those of the caller, nor are its
-- refusals: a newer release may have started it, with a filter or an action that this one does not know.
local function continue_one(id)
  local operation = find_operation(id)
  if not operation or operation.state ~= 'running' then
    redis.call('ZREM', key.operating(), id)
    return update_marker()
  end
  redis.call('ZADD', key.operating(), 'XX', now + OPERATION_TIMEOUT, id) -- if the step fails, others come first
  local mine, driver = pending_events, caller
  pending_events = {}
  local done, fault = pcall(take_step, id, operation, math.huge, SHARE_BUDGET, PAUSE)
  pending_events, caller = mine, driver
  if done then budget.steps = 0 elseif not is_refusal(fault) then error(fault, 0) end
end

-- Called while the marker `operations` is set.
local function continue_some()
  local first = redis.call('ZRANGE', key.operating(), 0, 0, 'WITHSCORES')
  if not first[1] then return update_marker() end
  local due = tonumber(first[2])
  if due <= now or due > now + OPERATION_TIMEOUT then continue_one(first[1]) end -- the clock may have gone back
end

-- Milliseconds until a step is due, if operations run.
local function next_step()
  local first = markers.operations and redis.call('ZRANGE', key.operating(), 0, 0, 'WITHSCORES') or {}
  return first[1] and math.max(0, math.min(OPERATION_TIMEOUT, tonumber(first[2]) - now)) or nil
end

register('stop_operation', { 'allow-oom' }, function(args)
  local operation = load_operation(args.id)
  if operation.state == 'running' then
    redis.call('HSET', key.operation(args.id), 'state', 'stopped', 'updated', now)
    redis.call('ZREM', key.operating(), args.id)
    update_marker()
    trim_operations(args.id)
  end
  return { describe_operation(args.id) }
end)

register('resume_operation', { 'allow-oom' }, function(args)
  local operation = load_operation(args.id)
  if operation.state == 'stopped' then
    check_running()
    redis.call('HSET', key.operation(args.id), 'state', 'running', 'updated', now)
    redis.call('ZADD', key.operating(), now + OPERATION_TIMEOUT, args.id)
    update_marker()
  end
  return { describe_operation(args.id) }
end)

register('operations', { 'no-writes' }, function(args)
  local ids, reply = args.ids and check_list(args.ids, '`ids`', 0) or redis.call('ZREVRANGE', key.operations(), 0, -1), {}
  for _, id in ipairs(ids) do
    if args.ids then load_operation(id) end
    if args.ids or find_operation(id) then reply[#reply + 1] = describe_operation(id) end
  end
  return reply
end)

core.operations = { PAUSE = PAUSE, expire = expire_operations, continue_some = continue_some, next_step = next_step,
  find = find_operation, forget = forget_operation, update_marker = update_marker }
