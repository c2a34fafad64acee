-- fair: the keys of a queue (tenants, say) share it by weight, whatever number of jobs each has.
--
-- A job with a key stands in its queue by a virtual time in the place of an arrival number: it begins when the last job of
-- its key ends in virtual time, or at the queue's virtual time if that is later. The queue's is that of the job claimed
-- last. So keys take turns, and it costs no more than a queue without keys: the same sorted set. Each priority has a
-- virtual time of its own.
--
--   fair     hash per queue: `v<priority>`, its virtual time; `w<key>`, the weight of a key if it is not 1
--   shares   sorted set per queue and priority: keys by where their last job ends, as long as that lies ahead
--
-- In a queue that has had a job with a key, jobs without one are those of the key ''.

local reserve_arrivals, set_marker = core.reserve_arrivals, core.set_marker
local FAIR, has, with = core.FAIR, core.has, core.with

-- A turn of the greatest weight is 1, so all jobs of a key have places of their own. Places are exact up to 2^44: more than
-- 10^11 jobs before a queue is empty once.
local fair_shares = { TURN = 100, MAX_START = 2 ^ 44 - 1 }

-- A sign says whether there is any such queue, so that those who have none do not ask.
function fair_shares.is_shared(queue) return markers.fair and redis.call('EXISTS', key.fair(queue)) == 1 end

-- The virtual time at which a new job of a key begins.
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

-- A job was claimed, so virtual time may move on: nothing has to be known any more of keys whose last job ended before.
function fair_shares.advance(job)
  local field = string.format('v%d', job.priority)
  if job.arrival <= tonumber(redis.call('HGET', key.fair(job.queue), field) or 0) then return end
  redis.call('HSET', key.fair(job.queue), field, string.format('%.0f', job.arrival))
  redis.call('ZREMRANGEBYSCORE', key.shares(job.queue, job.priority), '-inf', job.arrival)
end

-- Nothing is left that has a place: begin anew.
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

-- A job that becomes due, or is unblocked, retried or moved, gets a new place, as if it came just now; of a share if that is
-- given, else of the one that it has.
local function assign_arrival(job, share)
  local owner = share or (has(job.flags, FAIR) and redis.call('HGET', key.job(job.id), 'i'))
  local is_fair = owner or fair_shares.is_shared(job.queue)
  job.flags = with(job.flags, FAIR, is_fair and true or false)
  job.arrival = is_fair and fair_shares.next_start(job.queue, job.priority, owner or '') or reserve_arrivals(1) + 1
end

core.fair_shares, core.assign_arrival = fair_shares, assign_arrival
