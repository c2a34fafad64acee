-- check_lists: schedules, subscriptions, operations and sets of queues are those that their lists name.

local check, queue_sets, set_marker = core.check, core.queue_sets, core.set_marker
local find, removal, score = check.find, check.removal, check.score

local DAY, HOUR = core.DAY, 3600000

-- Declare a list whose entries have a key each. `record` returns that key. `is_by_name`: all its scores are 0, and workers
-- declare its entries.
local function list_kind(family, what, name, record, is_by_name)
  check.kind(family, { type = 'zset', name = name, single = true, entry = function(_, where, member, place)
    if check.exists(record(member)) then
      if is_by_name then check.sorted_by_name(what .. ' ' .. member, where, member, place) end
      return
    end
    find('stray_entry', what .. ' ' .. member, function()
      redis.call('ZREM', where, member)
      if is_by_name then core.set_since(math.max(now, (meta.since or 0) + 1)) end -- workers declare it again
    end)
  end })
end

local function check_listed(what, list, member, place)
  if not score(list, member) then
    find('unlisted', what .. ' ' .. member, function() redis.call('ZADD', list, place, member) end)
  end
end

-- Whether a hash has fields; if not, it is damaged.
local function check_whole(what, where, fields)
  local values = redis.call('HMGET', where, unpack(fields))
  for place = 1, #fields do
    if not values[place] then
      find('damaged_value', what .. ' ' .. fields[place])
      return nil
    end
  end
  return values
end

-- Schedules

local SCHEDULE = { 'batch', 'payload', 'missed', 'since' }

-- What a schedule has lost of its times: `next` with an interval, else `times`; nil if nothing. An empty list of times is right:
-- workers are asked for more.
local function lost_times(name)
  local values = redis.call('HMGET', key.schedule(name), 'every', 'next', 'times')
  if values[1] then return not tonumber(values[2]) and 'next' or nil end
  return not string.find(values[3] or 'lost', '^[%d ]*$') and 'times' or nil
end

-- The timer of a schedule has its next time. Without it, an interval begins again now, and workers are asked for times.
local function restore_times(name, field)
  local where, next_time = key.schedule(name), score(key.timers, '&' .. name)
  if field == 'next' and not next_time then
    next_time = now + (tonumber(redis.call('HGET', where, 'every')) or core.DAY)
  end
  redis.call('HSET', where, field, next_time and string.format('%.0f', next_time) or '')
  if field == 'times' then redis.call('SADD', key.refill(), name) end
  if field == 'times' and not markers.refill then set_marker('refill', 1) end
end

-- Find a schedule that would never fire again, as its times are lost. Returns whether it is one.
function check.schedule_times(name)
  local field = check.exists(key.schedule(name)) and lost_times(name)
  if not field then return false end
  find('damaged_value', 'schedule ' .. name .. ' ' .. field, function() restore_times(name, field) end)
  return true
end

check.kind('sc', { type = 'hash', name = 'schedules', whole = function(name, where)
  if not check.is_name(name) then return check.unknown(where) end
  check_listed('schedule', key.schedules(), name, 0)
  if not check_whole('schedule ' .. name, where, SCHEDULE) then return end
  check.schedule_times(name)
  local next_time = core.next_firing(name)
  if next_time and not score(key.timers, '&' .. name) then
    find('no_timer', '&' .. name, function() redis.call('ZADD', key.timers, next_time, '&' .. name) end)
  end
end })

list_kind('schedules', 'schedules', 'schedules', key.schedule, true)

check.kind('refill', { type = 'set', name = 'schedules', single = true, whole = function()
  if not markers.refill then find('marker', 'refill', function() set_marker('refill', 1) end) end
end, entry = function(_, where, name)
  if not check.exists(key.schedule(name)) then find('stray_entry', 'refill ' .. name, removal('SREM', where, name)) end
end })

-- Subscriptions. A worker that declares one that is damaged repairs it.

local SUBSCRIPTION = { 'position', 'spec', 'batch' }

check.kind('on', { type = 'hash', name = 'subscriptions', whole = function(name, where)
  if not check.is_name(name) then return check.unknown(where) end
  check_listed('subscription', key.subscriptions(), name, 0)
  check_whole('subscription ' .. name, where, SUBSCRIPTION)
end })

list_kind('subscriptions', 'subscriptions', 'subscriptions', key.subscription, true)

check.kind('events', { type = 'stream', name = 'events', single = true })

-- Operations

check.kind('op', { type = 'hash', name = 'operations', whole = function(id, where)
  if not check.is_name(id) then return check.unknown(where) end
  local operation = core.operations.find(id)
  if not operation then return find('damaged_value', 'op:' .. id, function() core.operations.forget(id) end) end
  check_listed('operation', key.operations(), id, tonumber(operation.started))
  if operation.state ~= 'running' then return end
  if not markers.operations then find('marker', 'operations', core.operations.update_marker) end
  if not score(key.operating(), id) then
    find('unlisted', 'operating ' .. id, function()
      redis.call('ZADD', key.operating(), now, id)
      core.operations.update_marker()
    end)
  end
end })

list_kind('operations', 'operations', 'operations', key.operation)

check.kind('operating', { type = 'zset', name = 'operations', single = true, entry = function(_, where, id, time)
  if check.read(false, 'HGET', key.operation(id), 'state') == 'running' then
    if tonumber(time) <= now + DAY then return end -- else upkeep would never continue it
    return find('misplaced', 'operating ' .. id, function() redis.call('ZADD', where, now, id) end)
  end
  find('stray_entry', 'operating ' .. id, function()
    redis.call('ZREM', where, id)
    core.operations.update_marker()
  end)
end })

check.kind('acted', { type = 'set', name = 'operations', whole = function(id, name)
  local state = check.read(false, 'HGET', key.operation(id), 'state')
  if not state or state == 'done' then find('orphan', 'acted:' .. id, check.deletion(name)) end
end })

-- Sets of queues. Workers register those that they serve again, within a minute.

check.kind('set', { type = 'string', name = 'workers', whole = function(id, name)
  if not score(key.sets(), id) then find('orphan', 'set:' .. id, check.deletion(name)) end
end })

check.kind('sets', { type = 'zset', name = 'workers', single = true, whole = function()
  if not queue_sets.is_marked() then find('marker', 'sets', queue_sets.update_markers) end
end, entry = function(_, _, id)
  local text = check.read(false, 'GET', key.set(id))
  if text and queue_sets.is_text_of(id, text) then return end
  find('damaged_value', 'set:' .. id, function()
    queue_sets.remove({ id })
    queue_sets.update_markers()
  end)
end })

-- Whether a set of queues is registered; a set of one queue need not be.
local function is_set(id) return string.sub(id, 1, 1) ~= '+' or score(key.sets(), id) end

local function served_kind(family, ttl, entry)
  check.kind(family, { type = 'zset', name = 'workers', ttl = ttl, whole = function(id, name)
    if is_set(id) then return true end
    find('orphan', core.short_key(name), check.deletion(name))
    return false
  end, entry = entry })
end

-- A pool claims from the queues that are ready, without another look at its patterns. Without the marker no set is known.
local function check_ready(id, name, queue)
  if not markers.sets then return end
  for _, set in ipairs(queue_sets.serving(queue)) do
    if set.id == id then return end
  end
  find('stray_entry', 'ready:' .. id .. ' ' .. queue, removal('ZREM', name, queue))
end

served_kind('live', DAY)
served_kind('idle', DAY)
served_kind('ready', nil, check_ready)

check.kind('filling', { type = 'hash', name = 'workers', single = true, whole = function()
  if not markers.filling then find('marker', 'filling', function() set_marker('filling', 1) end) end
end, entry = function(_, name, id)
  if not score(key.sets(), id) then find('stray_entry', 'filling ' .. id, removal('HDEL', name, id)) end
end })

-- Shares

check.kind('fair', { type = 'hash', name = 'shares', whole = function(queue, name)
  if not check.is_queue(queue) then
    check.unknown(name)
    return false
  end
  if not score(key.queues(), queue) then
    find('unlisted', 'queue ' .. queue, function() core.register_queue(queue) end)
  end
end, entry = function(queue, name, field, value)
  local letter = string.sub(field, 1, 1)
  if letter ~= 'v' and letter ~= 'w' then return check.unknown(name, field) end
  if letter == 'v' and not markers.fair then find('marker', 'fair', function() set_marker('fair', 1) end) end
  if not tonumber(value) then find('damaged_value', 'fair:' .. queue .. ' ' .. field, removal('HDEL', name, field)) end
end })

check.kind('shares', { type = 'zset', name = 'shares', whole = function(rest, name)
  local queue, priority = string.match(rest, '^(.+):(%-?%d+)$')
  if not queue then return check.unknown(name) end
  if check.read(false, 'HGET', key.fair(queue), 'v' .. priority) then return end
  find('orphan', 'shares:' .. rest, check.deletion(name))
end })

-- Items of a redis-work-queue and their jobs name each other.

check.kind('bridged', { type = 'hash', name = 'bridged items', entry = function(queue, name, field, value)
  local letter, rest = string.sub(field, 1, 1), string.sub(field, 2)
  local is_right = false
  if letter == 'i' then
    local job = string.match(value, '^(%S+) %x+$')
    is_right = job and redis.call('HGET', name, 'j' .. job) == rest
  elseif letter == 'j' then
    local note = redis.call('HGET', name, 'i' .. value)
    is_right = note and string.match(note, '^(%S+) %x+$') == rest
  else
    return check.unknown(name, field)
  end
  if not is_right then find('stray_entry', 'bridged:' .. queue .. ' ' .. field, removal('HDEL', name, field)) end
end })

-- Replies to calls that are repeated, and when libraries were called

check.kind('t', { type = 'string', name = 'replies', ttl = HOUR })
check.kind('libraries', { type = 'hash', name = 'other', single = true })

-- Keys of the app's own Lua, of which the library knows nothing.

check.kind('own', { type = 'any', name = 'keys of own Lua', ttl = 'any' })
