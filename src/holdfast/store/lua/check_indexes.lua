-- check_indexes: entries of the indexes, timers and holds must be confirmed by records.

local DEADLINE, EXPIRES, FINAL, LETTER_OF = core.DEADLINE, core.EXPIRES, core.FINAL, core.LETTER_OF
local attempt_field, check, expiry, has = core.attempt_field, core.check, core.expiry, core.has
local load_job, parse_hold, queue_sets = core.load_job, core.parse_hold, core.queue_sets
local register_queue, set_marker, setting = core.register_queue, core.set_marker, core.setting
local unpack_attempt, DAY = core.unpack_attempt, core.DAY
local find, removal, repair_job, score = check.find, check.removal, check.repair_job, check.score

-- Indexes by queue and state

-- Whether a claim could start a job of a queue.
local function can_start(queue)
  if markers.paused and redis.call('SISMEMBER', key.paused(), queue) == 1 then return false end
  local concurrency = setting('concurrency', queue)
  return concurrency == 0 or redis.call('ZCARD', key.index[queue].running) < concurrency
end

-- A pool looks at the queues in their order; it has not seen those after `last`.
local function check_pools(queue)
  if not markers.pools or not can_start(queue) then return end
  for _, set in ipairs(queue_sets.serving(queue)) do
    local last = set.is_pool and redis.call('HGET', key.filling(), set.id)
    local is_seen = set.is_pool and (not last or not core.sorts_before(last, queue))
    if is_seen and not score(key.ready(set.id), queue) then
      find('pool_unaware', queue, function() queue_sets.mark_ready(queue) end)
    end
  end
end

local function check_index(rest, name)
  local queue, state = string.match(rest, '^([^:]+):(%a+)$')
  if not queue or not check.is_queue(queue) or not LETTER_OF[state] then
    check.unknown(name)
    return false
  end
  if not score(key.queues(), queue) then find('unlisted', 'queue ' .. queue, function() register_queue(queue) end) end
  if state == 'waiting' then check_pools(queue) end
end

local function check_member(rest, name, id)
  if not check.is_id(id) then return check.unknown(name, id) end
  local queue, state = string.match(rest, '^([^:]+):(%a+)$')
  local job, fault = load_job(id)
  if job and job.queue == queue and job.state == state or fault == 'NEWER' or fault == 'DAMAGED' then return end
  find('stray_entry', rest .. ' ' .. id, repair_job(id, name))
end

check.kind('q', { type = 'zset', name = 'indexes', whole = check_index, entry = check_member })

check.kind('queues', { type = 'zset', name = 'indexes', single = true, entry = function(_, name, queue, place)
  if not check.is_queue(queue) then return check.unknown(name, queue) end
  check.sorted_by_name('queue ' .. queue, name, queue, place)
end })

check.kind('paused', { type = 'set', name = 'indexes', single = true, whole = function()
  if not markers.paused then find('marker', 'paused', function() set_marker('paused', 1) end) end
end, entry = function(_, name, queue)
  if not check.is_queue(queue) then return check.unknown(name, queue) end
  if not score(key.queues(), queue) then find('unlisted', 'queue ' .. queue, function() register_queue(queue) end) end
end })

-- Timers

-- The latest time that a timer may have, if it should have this one: one that failed is set again, and the clock may have gone
-- back.
local function latest(time) return math.max(time, now, meta.pulse or 0) + DAY end

local function check_schedule_timer(timer, name, time)
  local next_time = core.next_firing(name)
  if not next_time and check.schedule_times(name) then return end
  if not next_time then return find('stray_timer', timer, removal('ZREM', key.timers, timer)) end
  if time > latest(next_time) then
    find('misplaced', timer, function() redis.call('ZADD', key.timers, next_time, timer) end)
  end
end

local function check_deadline_timer(timer, id, time)
  local job, deadline = load_job(id, 'd')
  if not job and deadline ~= 'NOTFOUND' then return end
  if not job or not has(job.flags, DEADLINE) then return find('stray_timer', timer, removal('ZREM', key.timers, timer)) end
  deadline = tonumber(deadline)
  if check.is_time(deadline) and time ~= deadline then
    find('misplaced', timer, function() redis.call('ZADD', key.timers, deadline, timer) end)
  end
end

local function check_expiry_timer(timer, name, time)
  local expires = core.limit_expiry(name)
  if not expires then return find('stray_timer', timer, removal('ZREM', key.timers, timer)) end
  if time > latest(expires) then
    find('misplaced', timer, function() redis.call('ZADD', key.timers, expires, timer) end)
  end
end

local function check_limit_timer(timer, limit, time)
  local _, per = core.limits.definition(limit)
  if time <= latest(now) + (per or 0) then return end
  find('misplaced', timer, function() redis.call('ZADD', key.timers, now, timer) end)
end

local CHECK_TIMER = { ['&'] = check_schedule_timer, ['!'] = check_deadline_timer, ['='] = check_expiry_timer, ['%'] = check_limit_timer }

local function check_lease(job, time)
  if time <= latest(now) + math.max(job.lease, constants.MIN_LEASE) then return end
  find('misplaced', job.id, function() redis.call('ZADD', key.timers, now + math.max(job.lease, constants.MIN_LEASE), job.id) end)
end

-- Only the index of scheduled jobs has the time as well.
local function check_due(job, time)
  if check.is_time(time) then return end
  local due = score(key.index[job.queue].scheduled, job.id)
  find('misplaced', job.id, function() redis.call('ZADD', key.timers, check.is_time(due) and due or now, job.id) end)
end

local function check_timer(_, name, timer, time)
  local kind, rest = string.sub(timer, 1, 1), string.sub(timer, 2)
  if CHECK_TIMER[kind] then return CHECK_TIMER[kind](timer, rest, tonumber(time)) end
  if not check.is_id(timer) then return check.unknown(name, timer) end
  local job, fault = load_job(timer)
  if job and job.state == 'running' then return check_lease(job, tonumber(time)) end
  if job and job.state == 'scheduled' then return check_due(job, tonumber(time)) end
  if fault == 'NEWER' or fault == 'DAMAGED' then return end
  find('stray_timer', timer, repair_job(timer))
end

check.kind('timers', { type = 'zset', name = 'indexes', single = true, entry = check_timer })

-- Jobs with a time to live of their own

local function check_expiring(_, name, id, time)
  local job, fault, keep = load_job(id, 'k')
  if job then keep = fault elseif fault ~= 'NOTFOUND' then return end
  if not job or not FINAL[job.state] or not has(job.flags, EXPIRES) then
    return find('stray_entry', 'expiring ' .. id, removal('ZREM', name, id))
  end
  local own = job.since + (tonumber(keep) or expiry.time_to_live(job, keep))
  if tonumber(time) == own or job.state == 'failed' and tonumber(time) > own then return end
  find('misplaced', 'expiring ' .. id, function() redis.call('ZADD', name, job.since + expiry.time_to_live(job, keep), id) end)
end

check.kind('expiring', { type = 'zset', name = 'indexes', single = true, entry = check_expiring })

-- Holds

-- A job whose attempt is lost runs where it is held. Whether it is the right attempt is checked at the job.
local function check_held(executor, name, id, text)
  local job, fault = load_job(id)
  if fault == 'NEWER' or fault == 'DAMAGED' then return end
  local is_running = job and job.state == 'running'
  local run = is_running and check.read_attempt(job)
  if run and run.executor == executor then return end
  if is_running and (not run or run.executor == core.NO_EXECUTOR) and parse_hold(text) == job.attempt then
    return find('attempt_lost', id, function() check.restore_attempt(job, executor) end)
  end
  find('stray_hold', executor .. ' ' .. id, removal('HDEL', name, id))
end

check.kind('x', { type = 'hash', name = 'workers', entry = check_held })

-- Workers. A heartbeat restores what is lost of them, so they are only checked for their expiry.

check.kind('workers', { type = 'zset', name = 'workers', single = true, entry = function(_, name, worker, time)
  if tonumber(time) >= 0 and tonumber(time) <= latest(now) then return end
  find('misplaced', 'workers ' .. worker, function() redis.call('ZADD', name, now, worker) end)
end })
check.kind('w', { type = 'hash', name = 'workers', ttl = DAY })
check.kind('wake', { type = 'list', name = 'workers', ttl = DAY })
check.kind('inbox', { type = 'list', name = 'workers', ttl = DAY })
