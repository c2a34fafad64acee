-- check_limits: running jobs hold their slots, throttled ones are parked, and nothing parked is left behind.

local check, limits = core.check, core.limits
local load_job, set_marker = core.load_job, core.set_marker
local find, removal, score = check.find, check.removal, check.score

local WEEK = 7 * 86400000

-- The slots of a running job. One that an operator released is in the notes, so a job with notes is left alone.
function check.slots(job, names)
  for limit in limits.names_in(names) do
    check.spend(0.4)
    if not score(key.holders(limits.name_of(limit)), limit .. ' ' .. job.id) and not check.exists(key.notes(job.id)) then
      find('no_slot', limit .. ' ' .. job.id, function()
        redis.call('ZADD', key.holders(limits.name_of(limit)), 0, limit .. ' ' .. job.id)
      end)
    end
  end
end

local function check_holder(name, where, member, place)
  local limit, id = string.match(member, '^(%S+) (%S+)$')
  if not limit then return check.unknown(where, member) end
  local job, names = load_job(id, 'l')
  if not job and names ~= 'NOTFOUND' then return end
  if job and job.state == 'running' and limits.is_in(names, limit) and limits.name_of(limit) == name then
    return check.sorted_by_name('lh:' .. name .. ' ' .. member, where, member, place)
  end
  find('stray_slot', member, function()
    redis.call('ZREM', where, member)
    limits.offer_slots(limit)
  end)
end

check.kind('lh', { type = 'zset', name = 'limits', entry = check_holder })
check.kind('lr', { type = 'list', name = 'limits', ttl = WEEK })

-- Parked jobs

-- Whether every job that waits for a start in a queue is parked by this limit, so that nothing else leads to them.
local function has_only_parked(limit, queue)
  local index = key.index[queue]
  return redis.call('ZCARD', index.waiting) == 0
    and redis.call('ZCARD', index.throttled) == redis.call('ZCARD', key.parked(limit, queue))
end

local function is_stranded(limit, queue)
  local name = limits.name_of(limit)
  if score(key.reviewing(name), limit) or score(key.timers, '%' .. limit) then return false end
  local slots, per = limits.definition(limit)
  if slots and per > 0 then return true end -- its timer is missing
  return limits.free_slots(limit, 1) > 0 and has_only_parked(limit, queue)
end

local function split(rest) return string.match(rest, '^(%S+) (%S+)$') end

local function check_parking(rest, name)
  local limit, queue = split(rest)
  if not limit then
    check.unknown(name)
    return false
  end
  if not score(key.parking(limit), queue) or not score(key.throttling(limits.name_of(limit)), limit) then
    find('unlisted', 'lp:' .. rest, function() limits.index_parked(limit, queue) end)
  end
  if is_stranded(limit, queue) then find('stranded', limit, function() limits.unpark(limit) end) end
end

local function check_parked(rest, name, id, place)
  local limit, queue = split(rest)
  local job, parked_by = load_job(id, 'z')
  if not job and parked_by ~= 'NOTFOUND' then return end
  if not (job and job.state == 'throttled' and job.queue == queue and parked_by == limit) then
    return find('stray_entry', 'lp:' .. rest .. ' ' .. id, function()
      redis.call('ZREM', name, id)
      limits.drop_if_empty(limit, queue)
    end)
  end
  local right = job.priority * core.PRIORITY_STEP + job.arrival
  if tonumber(place) ~= right then find('misplaced', 'lp:' .. rest .. ' ' .. id, function() redis.call('ZADD', name, right, id) end) end
end

check.kind('lp', { type = 'zset', name = 'limits', whole = check_parking, entry = check_parked })

check.kind('lq', { type = 'zset', name = 'limits', entry = function(limit, name, queue, place)
  if check.exists(key.parked(limit, queue)) then return check.sorted_by_name('lq:' .. limit .. ' ' .. queue, name, queue, place) end
  find('stray_entry', 'lq:' .. limit .. ' ' .. queue, function() limits.drop_if_empty(limit, queue) end)
end })

check.kind('lt', { type = 'zset', name = 'limits', entry = function(name, where, limit, place)
  if check.exists(key.parking(limit)) then return check.sorted_by_name('lt:' .. name .. ' ' .. limit, where, limit, place) end
  find('stray_entry', 'lt:' .. name .. ' ' .. limit, removal('ZREM', where, limit))
end })

check.kind('lv', { type = 'zset', name = 'limits', whole = function(name)
  if redis.call('SISMEMBER', key.changed(), name) == 1 then return end
  find('unlisted', 'lv:' .. name, function()
    redis.call('SADD', key.changed(), name)
    set_marker('changed', 1)
  end)
end })

check.kind('changed', { type = 'set', name = 'limits', single = true, whole = function()
  if not markers.changed then find('marker', 'changed', function() set_marker('changed', 1) end) end
end })

-- Definitions. Of a damaged record, what can be read is enforced, and becomes a declaration that any other replaces. If nothing
-- can be read, the limit is not enforced; workers declare again what they declare, when `since` changes.
check.kind('limits', { type = 'hash', name = 'limits', single = true, entry = function(_, where, name)
  local expires, is_damaged = core.limit_expiry(name)
  if is_damaged then
    return find('damaged_value', 'limits ' .. name, function()
      if not core.keep_definition(name) then redis.call('HDEL', where, name) end
      redis.call('ZREM', key.timers, '=' .. name)
      core.set_since(now)
    end)
  end
  if expires and not score(key.timers, '=' .. name) then
    find('no_timer', '=' .. name, function() core.repair_expiry(name) end)
  end
end })

check.kind('undefined', { type = 'set', name = 'limits', single = true, ttl = WEEK, whole = function()
  if not markers.undefined then find('marker', 'undefined', function() set_marker('undefined', now) end) end
end, entry = function(_, where, name)
  if not limits.definition(name) then return end
  find('stray_entry', 'undefined ' .. name, removal('SREM', where, name))
end })

-- Unique keys

local IS_NEW = { scheduled = true, waiting = true, blocked = true, throttled = true }

local function may_own(letter, job)
  if letter == 'q' then return IS_NEW[job.state] end
  return letter == 'k' or letter == 'p' and not core.FINAL[job.state]
end

-- The unique key of a job, from its record.
function check.unique_key(job, field)
  local letter, unique = string.match(field, '^(%l)(.+)$')
  if not letter or letter == 't' or not may_own(letter, job) or letter == 'q' and job.attempt > 0 then return end
  if check.read(false, 'GET', key.unique(unique)) == core.pack_owner(letter, job.id, job.created) then return end
  find('unique_lost', job.id, function() return not core.reacquire_key(job) end)
end

local function check_unique(unique, name)
  local letter, id, created = string.match(redis.call('GET', name), '^(%l) (%S+) (%d+)$')
  if not letter then return find('damaged_value', 'k:' .. unique, check.deletion(name)) end
  local has_expiry = redis.call('PTTL', name) >= 0
  if letter == 't' then
    if has_expiry then return end
    return find('never_expires', 'k:' .. unique, function() redis.call('PEXPIRE', name, math.max(1, tonumber(created) - now)) end)
  end
  if has_expiry then return find('expires', 'k:' .. unique, function() redis.call('PERSIST', name) end) end
  local job, field = load_job(id, 'u')
  if not job and field ~= 'NOTFOUND' then return end
  if job and job.created == tonumber(created) and field == letter .. unique and may_own(letter, job) then return end
  find('stray_unique', 'k:' .. unique, check.deletion(name))
end

check.kind('k', { type = 'string', name = 'unique keys', ttl = 'any', whole = check_unique })
