-- limit: so many jobs at once, or so many per period, by name.
--
-- A limit has a name; a job says in which it takes part, as `name`, or as `name:key` to be counted with those of the same
-- key. A job that would be too many when it is claimed is parked: it is `throttled`, and stands in a sorted set of that
-- limit and its queue. Who gives a slot back, and the timer of a limit per period (`%name` among the timers), makes one
-- parked job of each queue waiting again, in its old place; it still has to take its slots.
--
--   limits             hash: name -> slots, and the period in milliseconds (0: at once)
--   holders            set per limit: the running jobs that have its slots
--   starts             list per limit per period: when its last jobs started, the newest first
--   parked             sorted set per limit and queue; parking: set of the queues, per limit; throttling: set of the limits
--                      with their keys, per name

local limit = { MOST_OF_A_JOB = 8, HANDED_ON = 100, PARKED_AT_ONCE = 1000, MOST_SLOTS = 1000000, MOST_PER_PERIOD = 100000 }
do

function limit.name_of(full) return string.match(full, '^[^:]+') end

function limit.each(names) return string.gmatch(names or '', '%S+') end

-- Slots and period of a limit; nothing if nobody has defined it: then it does not hold.
function limit.definition(full)
  local slots, per = string.match(redis.call('HGET', key.limits(), limit.name_of(full)) or '', '^(%d+) (%d+)$')
  return tonumber(slots), tonumber(per)
end

-- When the start at this place, the newest is 0, does not count any more. One that lies ahead does not either: the clock went
-- back.
local function worn_off(full, place, per)
  local started = tonumber(redis.call('LINDEX', key.starts(full), place))
  return started and started <= now and started + per or 0
end

-- How many more could start now, up to `most`.
function limit.free(full, most)
  local slots, per = limit.definition(full)
  if not slots then return most end
  if per == 0 then return math.min(slots - redis.call('SCARD', key.holders(full)), most) end
  local free = 0
  while free < math.min(slots, most) and worn_off(full, slots - free - 1, per) <= now do free = free + 1 end
  return free
end

-- Also of a limit that is not defined, or per period, it is known who has its slots: that may change while they run.
function limit.take(full, id)
  local slots, per = limit.definition(full)
  redis.call('SADD', key.holders(full), id)
  if not slots or per == 0 then return end
  redis.call('LPUSH', key.starts(full), now)
  redis.call('LTRIM', key.starts(full), 0, slots - 1)
  redis.call('PEXPIRE', key.starts(full), per)
end

-- When the parked jobs of a limit per period are to be looked at again.
local function set_timer(full)
  local slots, per = limit.definition(full)
  if not slots or per == 0 then return end
  collect(entering, key.timers(), math.max(now, worn_off(full, slots - 1, per)), '%' .. full)
end

local function forget_parked(full, queue)
  if redis.call('EXISTS', key.parked(full, queue)) == 1 then return end
  if redis.call('SREM', key.parking(full), queue) == 1 and redis.call('EXISTS', key.parking(full)) == 0 then
    redis.call('SREM', key.throttling(limit.name_of(full)), full)
  end
end

local function hand_on_some(full, queue, count)
  for _, id in ipairs(redis.call('ZRANGE', key.parked(full, queue), 0, count - 1)) do
    redis.call('ZREM', key.parked(full, queue), id)
    to_waiting(load_job(id))
    awakened[queue] = true
  end
  forget_parked(full, queue)
end

-- Make parked jobs of each queue waiting: as many as could start now. One queue may be paused, or have no workers; so as many
-- of each come, and those that find no slot are parked again. What is too much for one call is left to a timer.
function limit.hand_on(full)
  local free = limit.free(full, limit.HANDED_ON + 1)
  local queues = redis.call('SRANDMEMBER', key.parking(full), limit.HANDED_ON)
  local count = math.min(free, math.max(1, math.floor(limit.HANDED_ON / math.max(1, #queues))))
  local is_more = free > 0 and redis.call('SCARD', key.parking(full)) > #queues
  for _, queue in ipairs(free > 0 and queues or {}) do
    hand_on_some(full, queue, count)
    is_more = is_more or (count < free and redis.call('EXISTS', key.parked(full, queue)) == 1)
  end
  if is_more then
    collect(entering, key.timers(), now, '%' .. full)
  elseif redis.call('EXISTS', key.parking(full)) == 1 then
    set_timer(full)
  end
end

-- A job is not parked any more: it ends, or goes.
function limit.unpark(job)
  local full = redis.call('HGET', key.job(job.id), 'z')
  redis.call('ZREM', key.parked(full, job.queue), job.id)
  forget_parked(full, job.queue)
end

-- A job that might have taken slots does not: those who are parked may.
function limit.pass_up(names, but)
  for full in limit.each(names) do
    if full ~= but and redis.call('EXISTS', key.parking(full)) == 1 then limit.hand_on(full) end
  end
end

function limit.park(job, full, names)
  local place = job.priority * PRIORITY_STEP + job.arrival
  redis.call('ZADD', key.parked(full, job.queue), place, job.id)
  redis.call('SADD', key.parking(full), job.queue)
  redis.call('SADD', key.throttling(limit.name_of(full)), full)
  move(job, 'throttled', place, nil, { 'z', full })
  set_timer(full)
  settle() -- or the same job could be moved twice
  limit.pass_up(names, full)
end

-- Take all slots of a job that is about to start; or park it. Returns whether it may start.
function limit.may_start(job)
  local names = redis.call('HGET', key.job(job.id), 'l')
  for full in limit.each(names) do
    if limit.free(full, 1) < 1 then
      limit.park(job, full, names)
      return false
    end
  end
  for full in limit.each(names) do limit.take(full, job.id) end
  return true
end

-- An attempt has ended: its slots are for others.
function limit.give_back(job)
  for full in limit.each(redis.call('HGET', key.job(job.id), 'l')) do
    if redis.call('SREM', key.holders(full), job.id) == 1 then limit.pass_up(full) end
  end
end

-- A job that is not running ends, or goes.
function limit.leave(job)
  if job.state == 'throttled' then limit.unpark(job) end
  if job.state == 'waiting' then limit.pass_up(redis.call('HGET', key.job(job.id), 'l')) end
end

-- A limit was changed: look at all its keys for parked jobs, a bounded number in a call.
function limit.review(name)
  for _, full in ipairs(redis.call('SPOP', key.reviewing(name), limit.HANDED_ON)) do
    limit.hand_on(full)
    settle()
  end
  if redis.call('EXISTS', key.reviewing(name)) == 0 then redis.call('SREM', key.changed(), name) end
end

-- Whoever moves time on continues that.
function limit.go_on()
  if not meta.changed then return end
  local names = redis.call('SRANDMEMBER', key.changed(), 2)
  for _, name in ipairs(names) do limit.review(name) end
  if #names == 0 then redis.call('HDEL', key.meta(), 'changed') end
end

end
