-- shares: the shares of a queue (such as tenants) are served by weight, however many jobs each has.
--
-- A job with a share is ordered by a virtual start time instead of its arrival number: the virtual end of the share's
-- previous job, or the virtual time of the queue if that is later. The virtual time of a queue is the start of the job claimed
-- last. So shares take turns, at the cost of an ordinary queue: the same sorted set. Each priority has its own virtual time.
--
--   fair     hash per queue: `v<priority>`, its virtual time; `w<share>`, the weight of a share unless it is 1
--   shares   sorted set per queue and priority: shares by the virtual end of their last job, while it is in the future
--
-- In a queue with shares, jobs without one belong to the share ''.

local FAIR, has, reserve_arrivals, set_marker = core.FAIR, core.has, core.reserve_arrivals, core.set_marker
local with = core.with

-- A turn at the maximum weight is 1, so each job of a share has a distinct start. Starts are exact up to 2^44: more
-- than 10^11 jobs before the queue is empty once.
local fair_shares = { TURN = 100, MAX_START = 2 ^ 44 - 1 }

-- A marker records whether any queue is shared.
function fair_shares.is_shared(queue) return markers.fair and redis.call('EXISTS', key.fair(queue)) == 1 end

-- The virtual start of a new job of a share.
function fair_shares.next_start(queue, priority, owner)
  local field, shares = string.format('v%d', priority), key.shares(queue, priority)
  local known = redis.call('HMGET', key.fair(queue), field, 'w' .. owner)
  local start = math.max(tonumber(known[1]) or meta.arrivals, tonumber(redis.call('ZSCORE', shares, owner) or 0))
  redis.call('ZADD', shares, start + fair_shares.TURN / (tonumber(known[2]) or 1), owner)
  if not known[1] then
    redis.call('HSET', key.fair(queue), field, string.format('%.0f', start))
    if not markers.fair then set_marker('fair', 1) end
  end
  return math.min(math.floor(start), fair_shares.MAX_START)
end

-- After a claim: advance the virtual time, and forget shares whose last job ended before it.
function fair_shares.advance(job)
  local field = string.format('v%d', job.priority)
  if job.arrival <= tonumber(redis.call('HGET', key.fair(job.queue), field) or 0) then return end
  redis.call('HSET', key.fair(job.queue), field, string.format('%.0f', job.arrival))
  redis.call('ZREMRANGEBYSCORE', key.shares(job.queue, job.priority), '-inf', job.arrival)
end

-- Reset the virtual times of a queue without waiting, throttled or running jobs.
function fair_shares.prune(queue)
  if not fair_shares.is_shared(queue) then return end
  local index = key.index[queue]
  if redis.call('EXISTS', index.waiting, index.throttled, index.running) > 0 then return end
  for _, field in ipairs(redis.call('HKEYS', key.fair(queue))) do
    local priority = string.match(field, '^v(-?%d+)$')
    if priority then
      redis.call('DEL', key.shares(queue, priority))
      redis.call('HDEL', key.fair(queue), field)
    end
  end
end

-- Order a job that becomes due, is unblocked, retried or moved as if it were new, in the given share or its own.
local function assign_arrival(job, share)
  local owner = share or (has(job.flags, FAIR) and redis.call('HGET', key.job(job.id), 'i'))
  local is_fair = owner or fair_shares.is_shared(job.queue)
  job.flags = with(job.flags, FAIR, is_fair and true or false)
  job.arrival = is_fair and fair_shares.next_start(job.queue, job.priority, owner or '') or reserve_arrivals(1) + 1
end

core.fair_shares, core.assign_arrival = fair_shares, assign_arrival
