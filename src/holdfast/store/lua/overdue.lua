-- overdue: what is due but was not handled, as only `claim`, `renew` and `upkeep` advance time. Reads only.

local load_job = core.load_job

local overdue = {}

local MAX_INSPECTED, MAX_DEADLINES, MAX_PARKING = 10000, 1000, 100

function overdue.unfinished() return (markers.resolving and 1 or 0) + (markers.changed and 1 or 0) end

-- The number of due timers of the namespace, plus one for each kind of work that earlier calls left.
function overdue.count() return redis.call('ZCOUNT', key.timers, '-inf', now) + overdue.unfinished() end

-- How many scheduled jobs of a queue are due, and since when.
function overdue.jobs(queue)
  local index = key.index[queue].scheduled
  local count = redis.call('ZCOUNT', index, '-inf', now)
  return count, count > 0 and tonumber(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]) or nil
end

local function queue_of_schedule(name)
  local done, batch = pcall(cjson.decode, redis.call('HGET', key.schedule(name), 'batch') or '')
  return done and type(batch) == 'table' and batch.queue or nil
end

-- The queues with parked jobs of a limit that expires, of all its keys.
local function queues_of_name(name)
  local queues, seen = {}, {}
  for _, limit in ipairs(redis.call('ZRANDMEMBER', key.throttling(name), MAX_PARKING)) do
    for _, queue in ipairs(redis.call('ZRANDMEMBER', key.parking(limit), MAX_PARKING)) do
      if not seen[queue] then queues[#queues + 1] = queue end
      seen[queue] = true
    end
  end
  return queues
end

-- The queues that a timer affects, unless it is a job's own: the queue of a schedule or a job, or those with parked
-- jobs of a limit.
local function queues_of(kind, name)
  if kind == '%' then return redis.call('ZRANDMEMBER', key.parking(name), MAX_PARKING) end
  if kind == '=' then return queues_of_name(name) end
  if kind == '&' then return { queue_of_schedule(name) } end
  local job = load_job(name)
  return { job and job.queue or nil }
end

-- The number of such timers per queue, among the first that are due. If there are more, the queues of the first ones
-- have due jobs, and workers that claim those will handle the rest; but not if those queues are paused. So many timers
-- are inspected, although only schedules, limits and the first deadlines are looked up.
function overdue.by_queue()
  local counts, deadlines = {}, 0
  for _, timer in ipairs(redis.call('ZRANGEBYSCORE', key.timers, '-inf', now, 'LIMIT', 0, MAX_INSPECTED)) do
    local kind, name = string.match(timer, '^([%%=&!])(.+)$')
    if kind == '!' then deadlines = deadlines + 1 end
    local queues = kind and (kind ~= '!' or deadlines <= MAX_DEADLINES) and queues_of(kind, name) or {}
    for _, queue in ipairs(queues) do counts[queue] = (counts[queue] or 0) + 1 end
  end
  return counts
end

core.overdue = overdue
