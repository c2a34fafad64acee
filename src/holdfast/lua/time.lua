-- time: whoever calls moves time on, in bounded steps. So there is no scheduler to run, and none to fail.

local MOST, SCHEMA = core.MOST, core.SCHEMA
local FINAL, load_job = core.FINAL, core.load_job
local prune, settle, to_waiting = core.prune, core.settle, core.to_waiting
local arrive, fair = core.arrive, core.fair
local limit = core.limit
local wake = core.wake
local LEAST_LEASE, expire, gaps = core.LEAST_LEASE, core.expire, core.gaps
local deadline = core.deadline
local after = core.after

local STEP = 100 -- timers a call
local PRUNE_EVERY, PRUNE_QUEUES, PRUNE_JOBS = 1000, 10, 100

-- The clock went back: no lease may end later than a whole lease from now, and no gap lies ahead. A lease has the length
-- that it was claimed with. In one call for all queues, for the next call would not know of it; up to 10,000 leases.
local function clock_went_back()
  local left = 10 * MOST
  for _, queue in ipairs(redis.call('ZRANGE', key.queues(), 0, -1)) do
    if left == 0 then break end
    local running = redis.call('ZRANGE', key.index[queue].running, 0, left - 1)
    left = left - #running
    for _, id in ipairs(running) do
      local latest = now + load_job(id).lease
      if tonumber(redis.call('ZSCORE', key.timers, id)) > latest then redis.call('ZADD', key.timers, latest, id) end
    end
  end
  local known = gaps.parse()
  for _, gap in ipairs(known) do gap.ended = math.min(gap.ended, now) end
  gaps.remember(known)
end

-- Note that the store is there, and for how long it was not.
local function beat()
  local gap = meta.pulse and now - meta.pulse or 0
  if gap > LEAST_LEASE / 2 then gaps.add(gap) elseif gap < 0 then clock_went_back() end
  redis.call('HSET', key.meta, 'schema', SCHEMA, 'pulse', now)
  meta.new = false
end

-- Ended jobs of some queues, in turn, a bounded number each second.
local function prune_in_turn()
  local after = redis.call('HGET', key.meta, 'prune_after') or ''
  local queues = redis.call('ZRANGEBYLEX', key.queues(), '(' .. after, '+', 'LIMIT', 0, PRUNE_QUEUES)
  local left = PRUNE_JOBS
  for _, queue in ipairs(queues) do
    for state in pairs(FINAL) do left = left - prune(queue, state, left) end
    fair.prune(queue)
  end
  settle()
  redis.call('HSET', key.meta, 'pruned', now, 'prune_after', #queues == PRUNE_QUEUES and queues[#queues] or '')
end

-- A timer of something else: `%` and a limit, `&` and a schedule, `!` and a job that has a deadline. No id begins so.
local function ring(kind, name)
  redis.call('ZREM', key.timers, kind .. name)
  if kind == '%' then return limit.hand_on(name) end
  if kind == '&' then return core.fire(name) end
  settle() -- the job may have been moved just now
  deadline.ring(name)
end

-- Make due jobs waiting, and end leases that ended.
local function advance()
  after.go_on()
  limit.go_on()
  local due = redis.call('ZRANGEBYSCORE', key.timers, '-inf', now, 'LIMIT', 0, STEP)
  local queues = {}
  for _, id in ipairs(due) do
    local kind, name = string.match(id, '^([%%&!])(.+)$')
    if kind then
      ring(kind, name)
    else
      local job = load_job(id)
      if job and job.state == 'scheduled' then
        arrive(job)
        to_waiting(job)
        queues[job.queue] = true
      elseif job and job.state == 'running' then -- or a deadline has ended it just now
        expire(job)
        queues[job.queue] = true
      end
    end
  end
  settle()
  for queue in pairs(queues) do wake(queue) end
  if math.abs(now - meta.pruned) >= PRUNE_EVERY then prune_in_turn() end
end

core.beat, core.advance = beat, advance
