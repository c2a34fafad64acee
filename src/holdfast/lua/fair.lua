-- fair: the keys of a queue (tenants, say) share it by weight, whatever number of jobs each has.
--
-- A job with a key stands in its queue by a virtual time in the place of an arrival number: it begins when the last job of
-- its key ends in virtual time, or at the queue's virtual time if that is later. The queue's is that of the job claimed
-- last. So keys take turns, and it costs no more than a queue without keys: the same sorted set. Each priority has a
-- virtual time of its own.
--
--   fair   hash per queue: `v<priority>`, its virtual time; `k<priority> <key>`, where the key's last job ends; `w<key>`, the
--          weight of a key if it is not 1
--
-- In a queue that has had a job with a key, jobs without one are those of the key ''.

local fair = { TURN = 1000, MOST_WEIGHT = 100, LOOKED_AT = 20 }
local arrive -- for other files too
do

-- `meta` says whether there is any such queue, so that those who have none do not ask.
function fair.is_fair(queue) return meta.fair and redis.call('EXISTS', key.fair(queue)) == 1 end

-- The names of a key's fields, and their values: virtual time, end of the last job, length of a turn.
local function look(queue, priority, owner)
  local time, last = string.format('v%d', priority), string.format('k%d %s', priority, owner)
  local values = redis.call('HMGET', key.fair(queue), time, last, 'w' .. owner)
  return time, last, tonumber(values[1]), tonumber(values[2]) or 0, math.floor(fair.TURN / (tonumber(values[3]) or 1))
end

-- The virtual time at which a new job of a key begins.
function fair.begin(queue, priority, owner)
  local time_field, last_field, time, last, turn = look(queue, priority, owner)
  local start = math.max(time or meta.arrivals, last)
  redis.call('HSET', key.fair(queue), last_field, string.format('%.0f', start + turn))
  if not time then
    redis.call('HSET', key.fair(queue), time_field, string.format('%.0f', start))
    redis.call('HSET', key.meta(), 'fair', 1)
    meta.fair = '1'
  end
  return start
end

-- A job was claimed. If it is the last of its key, nothing has to be known of the key any more.
function fair.claimed(job)
  local owner = redis.call('HGET', key.job(job.id), 'i') or ''
  local time_field, last_field, time, last, turn = look(job.queue, job.priority, owner)
  if job.arrival > (time or 0) then
    redis.call('HSET', key.fair(job.queue), time_field, string.format('%.0f', job.arrival))
  end
  if last <= job.arrival + turn then redis.call('HDEL', key.fair(job.queue), last_field) end
end

-- What is not needed any more, as jobs were cancelled or moved and not claimed: found by looking at some, whoever they are.
function fair.prune(queue)
  if not fair.is_fair(queue) then return end
  local is_empty = redis.call('EXISTS', key.index(queue, 'waiting'), key.index(queue, 'throttled')) == 0
  local list = redis.call('HRANDFIELD', key.fair(queue), fair.LOOKED_AT, 'WITHVALUES')
  for place = 1, #list, 2 do
    local kind, priority = string.match(list[place], '^([kv])(-?%d+)')
    local time = kind == 'k' and tonumber(redis.call('HGET', key.fair(queue), 'v' .. priority)) or 0
    if kind and (is_empty or (kind == 'k' and tonumber(list[place + 1]) <= time)) then
      redis.call('HDEL', key.fair(queue), list[place])
    end
  end
end

-- A job that becomes due, or is unblocked, retried or moved, gets a new place, as if it came just now; of a share if that is
-- given, else of the one that it has.
arrive = function(job, share)
  local owner = share or (has(job.flags, FAIR) and redis.call('HGET', key.job(job.id), 'i'))
  local is_fair = owner or fair.is_fair(job.queue)
  job.flags = with(job.flags, FAIR, is_fair and true or false)
  job.arrival = is_fair and fair.begin(job.queue, job.priority, owner or '') or reserve_arrivals(1) + 1
end

end
