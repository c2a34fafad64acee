-- limits: named limits on concurrent jobs, or on starts per period.
--
-- A job lists its limits as `name`, or as `name:key` to be counted per key. Here `limit` is either form, and `name` is the
-- part before the colon. If a limit is exhausted when a job is claimed, the job is parked: it becomes `throttled`, in a
-- sorted set per limit and queue. A released slot makes one parked job of each queue waiting again, in its old position; so
-- does the timer of a limit per period (`%name` in `timers`), for as many jobs as could start. They still have to take their
-- slots. A job with several limits is parked by one of them, and counts as waiting for the others.
--
--   limits       hash: name -> slots, the period in milliseconds (0: concurrent jobs), and more: see limit_definitions.lua
--   holders      per name: `limit id` of the running jobs that hold slots, of all its keys
--   starts       list per limit with a period: times of its last starts, newest first
--   parked       sorted set per limit and queue; parking: queues per limit; throttling: limits with their keys per name
--   holders, parking, throttling and reviewing are sorted sets in which all scores are 0: ordered by member, they can be
--   counted and read in parts
--   undefined    set: names of limits that jobs used but nobody has defined; see `note_undefined`

local PRIORITY_STEP, add_note, flush, load_job = core.PRIORITY_STEP, core.add_note, core.flush, core.load_job
local loop_despite_errors, move, set_marker = core.loop_despite_errors, core.move, core.set_marker
local to_waiting, wake_later = core.to_waiting, core.wake_later

local limits = { MAX_UNPARKED = 100, MAX_PARKED = 200, MAX_INSPECTED = 100, HOLDERS_CHECKED = 3, MAX_CHECKS = 20 }

function limits.name_of(limit) return string.match(limit, '^[^:]+') end

function limits.names_in(names) return string.gmatch(names or '', '%S+') end

-- Slots and period as numbers; nil if these parts of a record are missing or damaged.
function limits.read_definition(slots, per)
  slots, per = tonumber(slots), tonumber(per)
  if slots and slots >= 1 and slots <= constants.MAX_SLOTS and per and per <= constants.MAX_DURATION then return slots, per end
end

-- Slots and period of a limit; nil if it is undefined, and therefore not enforced.
function limits.definition(limit)
  return limits.read_definition(string.match(redis.call('HGET', key.limits(), limits.name_of(limit)) or '', '^(%d+) (%d+) '))
end

local function holders_of(limit) return key.holders(limits.name_of(limit)) end

-- How many jobs hold a slot. `!` is the character after the space.
function limits.count_holders(limit)
  return redis.call('ZLEXCOUNT', holders_of(limit), '[' .. limit .. ' ', '(' .. limit .. '!')
end

-- Returns whether the job had a slot.
function limits.remove_holder(limit, id) return redis.call('ZREM', holders_of(limit), limit .. ' ' .. id) == 1 end

-- When the start at this position (0 is the newest) stops counting. A start in the future does not count: the clock
-- went back.
local function counts_until(limit, place, per)
  local started = tonumber(redis.call('LINDEX', key.starts(limit), place))
  return started and started <= now and started + per or 0
end

-- When a limit per period lets the next job start; nil for others.
function limits.next_start(limit)
  local slots, per = limits.definition(limit)
  return slots and per > 0 and math.max(now, counts_until(limit, slots - 1, per)) or nil
end

-- Whether this many jobs could start now.
function limits.has_slots(limit, count)
  local slots, per = limits.definition(limit)
  if not slots then return true end
  if per == 0 then return slots - limits.count_holders(limit) >= count end
  return count <= slots and counts_until(limit, slots - count, per) <= now
end

-- How many more jobs could start now, up to `max`.
function limits.free_slots(limit, max)
  local slots, per = limits.definition(limit)
  if not slots then return max end
  if per == 0 then return math.min(slots - limits.count_holders(limit), max) end
  local free = 0
  while free < math.min(slots, max) and counts_until(limit, slots - free - 1, per) <= now do free = free + 1 end
  return free
end

local MAX_UNDEFINED, UNDEFINED_TTL = 1000, 7 * 86400000

-- An undefined limit is not enforced, and may be a typo: workers, `limits` and the doctor report it. The set expires a
-- week after its first name was added; names still in use are added again. Each new name raises the marker.
local function note_undefined(name)
  if redis.call('SADD', key.undefined(), name) == 0 then return end
  local count = redis.call('SCARD', key.undefined())
  if count > MAX_UNDEFINED then return redis.call('SREM', key.undefined(), name) end
  if count == 1 then redis.call('PEXPIRE', key.undefined(), UNDEFINED_TTL) end
  set_marker('undefined', math.max(now, (markers.undefined or 0) + 1))
end

-- Returns whether the name was in the set.
function limits.forget_undefined(name)
  if not markers.undefined or redis.call('SREM', key.undefined(), name) == 0 then return false end
  if redis.call('EXISTS', key.undefined()) == 0 then set_marker('undefined', nil) end
  return true
end

-- Holders are recorded for undefined limits and limits per period too: the definition may change while jobs run.
function limits.take_slot(limit, id)
  local slots, per = limits.definition(limit)
  redis.call('ZADD', holders_of(limit), 0, limit .. ' ' .. id)
  if not slots then note_undefined(limits.name_of(limit)) end
  if not slots or per == 0 then return end
  redis.call('LPUSH', key.starts(limit), now)
  redis.call('LTRIM', key.starts(limit), 0, slots - 1)
  redis.call('PEXPIRE', key.starts(limit), per)
end

local function set_timer(limit, time) redis.call('ZADD', key.timers, 'LT', time, '%' .. limit) end

-- Set the timer of a limit per period to when more than `free` jobs can start.
local function set_check_timer(limit, free)
  local slots, per = limits.definition(limit)
  if not slots or per == 0 then return end
  set_timer(limit, free < slots and math.max(now, counts_until(limit, slots - free - 1, per)) or now + per)
end

local function drop_if_empty(limit, queue)
  if redis.call('EXISTS', key.parked(limit, queue)) == 1 then return end
  if redis.call('ZREM', key.parking(limit), queue) == 1 and redis.call('EXISTS', key.parking(limit)) == 0 then
    redis.call('ZREM', key.throttling(limits.name_of(limit)), limit)
  end
end

-- Returns whether the job was parked.
local function unpark_one(limit, queue, id)
  redis.call('ZREM', key.parked(limit, queue), id)
  local job = load_job(id)
  if not job or job.state ~= 'throttled' or job.queue ~= queue then
    core.repair(id, key.index[queue].throttled)
    return false
  end
  to_waiting(job)
  wake_later(queue)
  return true
end

local function unpark_some(limit, queue, count)
  local ids, gone = redis.call('ZRANGE', key.parked(limit, queue), 0, count - 1), 0
  for _, id in ipairs(ids) do
    if not unpark_one(limit, queue, id) then gone = gone + 1 end
  end
  budget.unparked = budget.unparked - #ids
  if gone > 0 and budget.unparked > 0 then return unpark_some(limit, queue, gone) end -- continue with the next ones
  drop_if_empty(limit, queue)
end

-- Make parked jobs of each queue waiting: as many as could start now, or `max`. A queue may be paused or have no
-- workers, so each queue gets that many; jobs that find no slot are parked again. The timer handles what exceeds one
-- call.
function limits.unpark(limit, max)
  local free = limits.free_slots(limit, limits.MAX_UNPARKED + 1)
  local queues = redis.call('ZRANDMEMBER', key.parking(limit), limits.MAX_UNPARKED)
  local wanted = math.min(free, max or free)
  local count = math.min(wanted, math.max(1, math.floor(limits.MAX_UNPARKED / math.max(1, #queues))))
  local is_more = wanted > 0 and redis.call('ZCARD', key.parking(limit)) > #queues
  for _, queue in ipairs(wanted > 0 and queues or {}) do
    if budget.unparked > 0 then unpark_some(limit, queue, count) end
    is_more = is_more or ((count < wanted or budget.unparked <= 0) and redis.call('EXISTS', key.parked(limit, queue)) == 1)
  end
  if is_more then
    set_timer(limit, now)
  elseif redis.call('EXISTS', key.parking(limit)) == 1 then
    set_check_timer(limit, free)
  end
end

-- Unpark a job that ends or is deleted. Returns the limit that had parked it.
function limits.remove_parked(job)
  local limit = redis.call('HGET', key.job(job.id), 'z')
  if not limit then return nil end
  redis.call('ZREM', key.parked(limit, job.queue), job.id)
  drop_if_empty(limit, job.queue)
  return limit
end

-- Offer the slots that a job did not take to parked ones.
function limits.offer_slots(names, except)
  for limit in limits.names_in(names) do
    if limit ~= except and redis.call('EXISTS', key.parking(limit)) == 1 then limits.unpark(limit, 1) end
  end
end

local function index_parked(limit, queue)
  redis.call('ZADD', key.parking(limit), 0, queue)
  redis.call('ZADD', key.throttling(limits.name_of(limit)), 0, limit)
end

local function add_parked(limit, queue, place, id)
  if redis.call('ZADD', key.parked(limit, queue), place, id) == 1 then index_parked(limit, queue) end
end

-- Whether a throttled job is in all indexes of its limit.
function limits.is_parked(job)
  local limit = redis.call('HGET', key.job(job.id), 'z')
  return limit and redis.call('ZSCORE', key.parked(limit, job.queue), job.id)
    and redis.call('ZSCORE', key.parking(limit), job.queue)
    and redis.call('ZSCORE', key.throttling(limits.name_of(limit)), limit)
end

-- Restore the index entries of a throttled job (see repair.lua). Slots may be free by now, so the limit's timer is set.
function limits.restore_parked(job, place)
  local limit = redis.call('HGET', key.job(job.id), 'z')
  if not limit then return end
  redis.call('ZADD', key.parked(limit, job.queue), place, job.id)
  index_parked(limit, job.queue)
  set_timer(limit, now)
end

-- Whether a limit is among the names of a record.
function limits.is_in(names, limit)
  for other in limits.names_in(names) do
    if other == limit then return true end
  end
  return false
end

local function has_limit(id, limit)
  local _, names = load_job(id, 'l')
  return limits.is_in(names, limit)
end

-- Whether a limit probably applies to fewer jobs than another, judging by their names.
local function is_narrower(one, other)
  local key_of_one, key_of_other = string.find(one, ':', 1, true), string.find(other, ':', 1, true)
  if (key_of_one == nil) ~= (key_of_other == nil) then return key_of_one ~= nil end
  return one < other
end

-- Unpark the first job that does not use the limit `except`, which is full. The jobs before it could just as well be
-- parked by `except`; they move there if it is the narrower limit, and never back, or large groups could oscillate.
local function offer_to_queue(limit, queue, except)
  local list = redis.call('ZRANGE', key.parked(limit, queue), 0, limits.MAX_INSPECTED - 1, 'WITHSCORES')
  local must_move = is_narrower(except, limit)
  for at = 1, #list, 2 do
    local id = list[at]
    budget.inspected = budget.inspected - 1
    if not has_limit(id, except) then
      if unpark_one(limit, queue, id) then break end
    elseif must_move then
      redis.call('ZREM', key.parked(limit, queue), id)
      add_parked(except, queue, list[at + 1], id)
      redis.call('HSET', key.job(id), 'z', except)
    end
    if at + 1 == #list and must_move then set_timer(limit, now) end
  end
  drop_if_empty(limit, queue)
end

-- A job that could have taken a slot is parked by another limit; until that has a slot, others may take this one.
local function offer(limit, except)
  if redis.call('EXISTS', key.parking(limit)) == 0 or limits.free_slots(limit, 1) < 1 then return end
  for _, queue in ipairs(redis.call('ZRANDMEMBER', key.parking(limit), 10)) do
    if budget.inspected > 0 then offer_to_queue(limit, queue, except) end
  end
end

-- A spell is the time in which a job was parked before one attempt, however often: the number of the attempt before, when the
-- job was parked first, for how long it had waited before, and how many times it was parked. The record has the last spell, so
-- that repeated parking does not fill the history; the one before it becomes a note, which also names the limit.
local function parse_spell(field)
  local attempt, first, waited, times = string.match(field or '', '^(%d+) (%d+) (%d+) (%d+)$')
  return tonumber(attempt), tonumber(first), tonumber(waited), tonumber(times)
end

-- Since when the job had waited before the spell, when it was parked first, how many times, and the limit that did it last.
function limits.describe_spell(field, limit)
  local attempt, first, waited, times = parse_spell(field)
  return attempt and { first - waited, first, times, limit or '' } or {}
end

-- The same of a note.
function limits.describe_parked(first, text)
  local waited, times, limit = string.match(text, '^(%d+) (%d+) (%S+)$')
  return { first - (tonumber(waited) or 0), first, tonumber(times) or 1, limit or '' }
end

local function continue_spell(job, field)
  local attempt, first, waited, times = parse_spell(field)
  if attempt == job.attempt then return string.format('%d %.0f %.0f %d', attempt, first, waited, times + 1) end
  if attempt then
    local limit = redis.call('HGET', key.job(job.id), 'z')
    add_note(job, 't', string.format('%.0f %d %s', waited, times, limit), '', first)
  end
  return string.format('%d %.0f %.0f 1', job.attempt, now, math.max(0, now - job.since))
end

-- Park a job. `names`: its limits; `spell`: the field `m` of its record.
function limits.park(job, limit, names, spell)
  local place = job.priority * PRIORITY_STEP + job.arrival
  add_parked(limit, job.queue, place, job.id)
  spell = continue_spell(job, spell)
  move(job, 'throttled', place, nil, 'z', limit, 'm', spell)
  set_check_timer(limit, 0)
  if names == limit then return end
  flush() -- or the same job could be moved twice
  for other in limits.names_in(names) do
    if other ~= limit then offer(other, limit) end
  end
end

-- Some holders of a limit, at a position that differs from call to call.
local function sample_holders(limit)
  local count = limits.count_holders(limit)
  if count == 0 then return {} end
  local first = redis.call('ZLEXCOUNT', holders_of(limit), '-', '(' .. limit .. ' ')
  local place = first + tonumber(string.sub(redis.sha1hex(string.format('%.0f', now)), 1, 8), 16) % count
  local last = first + count - 1
  local found = redis.call('ZRANGE', holders_of(limit), place, math.min(place + limits.HOLDERS_CHECKED - 1, last))
  local before = math.min(limits.HOLDERS_CHECKED - #found, place - first)
  for _, holder in ipairs(before > 0 and redis.call('ZRANGE', holders_of(limit), first, first + before - 1) or {}) do
    found[#found + 1] = holder
  end
  return found
end

-- Remove some holders that no longer run, according to their records. Returns whether there were any.
local function drop_stale_holders(limit)
  local is_stale = false
  for _, holder in ipairs(sample_holders(limit)) do
    local id = string.sub(holder, #limit + 2)
    local job, fault = load_job(id)
    if fault == 'NOTFOUND' or (job and job.state ~= 'running') then
      is_stale = limits.remove_holder(limit, id) or is_stale
    end
  end
  return is_stale
end

-- Check the holders of a full limit, once per call unless some are stale. Returns whether there may be a free slot now.
function limits.repair_full(limit)
  local checked = full_limits or {}
  if checked[limit] then return false end
  if drop_stale_holders(limit) then return true end
  checked[limit] = true
  full_limits = checked
  return false
end

-- Repair a random limit: set the missing timer of its expiry; unpark jobs if its slots are held by no running job, if
-- its record is damaged, so that it is not enforced, or if the timer that would unpark them is missing.
function limits.repair_some()
  local name = redis.call('HRANDFIELD', key.limits())
  if not name then return end
  core.repair_expiry(name)
  local limit = redis.call('ZRANDMEMBER', key.throttling(name))
  if not limit then return end
  local slots, per = limits.definition(limit)
  if not slots then
    limits.unpark(limit)
  elseif per > 0 then
    if not redis.call('ZSCORE', key.timers, '%' .. limit) then limits.unpark(limit) end
  elseif limits.free_slots(limit, 1) < 1 and drop_stale_holders(limit) then
    limits.unpark(limit)
  end
end

-- Take all slots of a job that starts.
function limits.take_slots(names, id)
  for limit in limits.names_in(names) do limits.take_slot(limit, id) end
end

-- Release the slots of an attempt that ended.
function limits.release_slots(job)
  for limit in limits.names_in(redis.call('HGET', key.job(job.id), 'l')) do
    if limits.remove_holder(limit, job.id) then limits.offer_slots(limit) end
  end
end

-- A job that is not running ends or is deleted.
function limits.leave(job)
  if job.state ~= 'throttled' and job.state ~= 'waiting' then return end
  local parked_by = job.state == 'throttled' and limits.remove_parked(job)
  limits.offer_slots(redis.call('HGET', key.job(job.id), 'l'), parked_by)
end

-- After a limit changed, unpark jobs of all its keys, a bounded number per call.
function limits.review(name)
  local names, at = redis.call('ZPOPMIN', key.reviewing(name), limits.MAX_UNPARKED), -1 -- each followed by its score
  loop_despite_errors(function()
    while at + 2 < #names do
      at = at + 2
      limits.unpark(names[at])
      flush()
    end
  end)
  if redis.call('EXISTS', key.reviewing(name)) == 0 then redis.call('SREM', key.changed(), name) end
end

-- Continue the reviews of earlier calls.
function limits.continue_reviews()
  if not markers.changed then return end
  local names = redis.call('SRANDMEMBER', key.changed(), 2)
  for _, name in ipairs(names) do limits.review(name) end
  if redis.call('EXISTS', key.changed()) == 1 then return end
  set_marker('changed', nil)
end

limits.index_parked, limits.drop_if_empty = index_parked, drop_if_empty
core.limits = limits
