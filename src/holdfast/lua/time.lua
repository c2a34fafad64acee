-- time: whoever calls moves time on, in bounded steps. So there is no scheduler to run, and none to fail.

local STEP = 100 -- timers a call
local PRUNE_EVERY, PRUNE_QUEUES, PRUNE_JOBS = 1000, 10, 100

-- Note that the store is there, and for how long it was not. The gap that is remembered is the longest of those that
-- still spare a lease: one shorter than twice its length.
local function beat()
  local gap = meta.pulse and now - meta.pulse or 0
  if gap <= LEAST_LEASE / 2 then
    redis.call('HSET', key.meta(), 'schema', SCHEMA, 'pulse', now)
  else
    if now < meta.gap_at + 2 * meta.gap_length then gap = math.max(gap, meta.gap_length) end
    meta.gap_at, meta.gap_length = now, gap
    redis.call('HSET', key.meta(), 'schema', SCHEMA, 'pulse', now, 'gap_at', now, 'gap_length', gap)
  end
  meta.new = false
end

-- The clock went back: no lease may end later than a whole lease from now.
local function cut_leases(queues)
  for _, queue in ipairs(queues) do
    for _, id in ipairs(redis.call('ZRANGE', key.index(queue, 'running'), 0, MOST - 1)) do
      local job = load_job(id)
      if tonumber(redis.call('ZSCORE', key.timers(), id)) > now + job.lease then
        redis.call('ZADD', key.timers(), now + job.lease, id)
      end
    end
  end
end

-- Ended jobs of some queues, in turn, a bounded number each second.
local function prune_in_turn()
  local after = redis.call('HGET', key.meta(), 'prune_after') or ''
  local queues = redis.call('ZRANGEBYLEX', key.queues(), '(' .. after, '+', 'LIMIT', 0, PRUNE_QUEUES)
  local left = PRUNE_JOBS
  for _, queue in ipairs(queues) do
    for state in pairs(KEEP) do left = left - prune(queue, state, left) end
  end
  settle()
  redis.call('HSET', key.meta(), 'pruned', now, 'prune_after', #queues == PRUNE_QUEUES and queues[#queues] or '')
end

-- Make due jobs waiting, and end leases that ended.
local function advance()
  local due = redis.call('ZRANGEBYSCORE', key.timers(), '-inf', now, 'LIMIT', 0, STEP)
  local queues = {}
  local arrival = #due > 0 and reserve_arrivals(#due) or 0
  for place, id in ipairs(due) do
    local job = load_job(id)
    if job.state == 'scheduled' then
      job.arrival = arrival + place
      to_waiting(job)
    else
      expire(job)
    end
    queues[job.queue] = true
  end
  settle()
  for queue in pairs(queues) do wake(queue) end
  if now - meta.pruned >= PRUNE_EVERY then prune_in_turn() end
end
