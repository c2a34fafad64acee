-- time: whoever calls moves time on, in bounded steps. So there is no scheduler to run, and none to fail.

local MAX_BATCH, SCHEMA, do_all, go_on_after_failures = core.MAX_BATCH, core.SCHEMA, core.do_all, core.go_on_after_failures
local set_sign = core.set_sign
local FINAL, load_job = core.FINAL, core.load_job
local settle, to_waiting = core.settle, core.to_waiting
local arrive, fair = core.arrive, core.fair
local limit = core.limit
local wake = core.wake
local MIN_LEASE, expire, gaps = core.MIN_LEASE, core.expire, core.gaps
local deadline = core.deadline
local after = core.after
local know_again, mend, mend_some = core.know_again, core.mend, core.mend_some
local prune = core.prune

local STEP = 100 -- timers a call
local AFTER_FAILURE = 60000 -- milliseconds until what failed is tried again
local PRUNE_EVERY, PRUNE_QUEUES, PRUNE_JOBS = 1000, 10, 500

-- The clock went back: no lease may end later than a whole lease from now, and no gap lies ahead. A lease has the length
-- that it was claimed with. In one call for all queues, for the next call would not know of it; up to 10,000 leases.
local function clock_went_back()
  local left = 10 * MAX_BATCH
  for _, queue in ipairs(redis.call('ZRANGE', key.queues(), 0, -1)) do
    if left == 0 then break end
    local running = redis.call('ZRANGE', key.index[queue].running, 0, left - 1)
    left = left - #running
    for _, id in ipairs(running) do
      local job, timer = load_job(id), tonumber(redis.call('ZSCORE', key.timers, id) or 0)
      if job and timer > now + job.lease then redis.call('ZADD', key.timers, now + job.lease, id) end
    end
  end
  local known = gaps.parse()
  for _, gap in ipairs(known) do gap.ended = math.min(gap.ended, now) end
  gaps.remember(known)
end

-- Note that the store is there, and for how long it was not.
local function beat()
  local gap = meta.pulse and now - meta.pulse or 0
  if gap > MIN_LEASE / 2 then gaps.add(gap) elseif gap < 0 then clock_went_back() end
  redis.call('HSET', key.meta, 'schema', SCHEMA, 'pulse', now)
  meta.new = false
end

-- Remove ended jobs of a queue, up to so many; if that was all, compare some of its entries. Returns how many more may be removed.
local function prune_queue(queue, left)
  for state in pairs(FINAL) do left = left - prune(queue, state, left) end
  if left > 0 then
    fair.prune(queue)
    mend_some(queue)
  end
  return left
end

-- Ended jobs of some queues, in turn, each second; while there are more than one call may remove, at each call.
local function prune_in_turn(served)
  know_again(served)
  local after = redis.call('HGET', key.meta, 'prune_after') or ''
  local queues = redis.call('ZRANGEBYLEX', key.queues(), '(' .. after, '+', 'LIMIT', 0, PRUNE_QUEUES)
  local left, at, done = PRUNE_JOBS, 0, #queues == PRUNE_QUEUES and queues[#queues] or ''
  go_on_after_failures(function()
    while at < #queues and left > 0 do
      at = at + 1
      left = prune_queue(queues[at], left)
    end
  end)
  if left <= 0 then done = queues[at - 1] or after end
  do_all({ limit.mend_some, core.mend_schedules, settle })
  if (left <= 0) ~= (signs.surplus ~= nil) then set_sign('surplus', left <= 0 and 1 or nil) end
  redis.call('HSET', key.meta, 'pruned', now, 'prune_after', done)
end

-- A timer of something else: `%` and a limit, `&` and a schedule, `!` and a job that has a deadline. No id begins so. Returns
-- whether it stays.
local function ring(kind, name)
  if kind == '!' then
    settle() -- the job may have been moved just now
    return deadline.ring(name)
  end
  redis.call('ZREM', key.timers, kind .. name)
  if kind == '%' then limit.hand_on(name) else core.fire(name) end
  return false
end

-- Have something done that is due. Returns whether its timer stays: the job cannot be read. A job whose record says otherwise is
-- added to `odd`: it may have been moved just now, by its deadline for instance.
local function meet(id, queues, odd)
  local kind, name = string.match(id, '^([%%&!])(.+)$')
  if kind then return ring(kind, name) end
  local job = load_job(id)
  if job and job.state == 'scheduled' then
    arrive(job)
    to_waiting(job)
  elseif job and job.state == 'running' then
    expire(job)
  else
    odd[#odd + 1] = id
    return false
  end
  queues[job.queue] = true
  return false
end

-- Meeting a timer has failed. That of a schedule or a limit was removed before: it comes again. Returns whether it stays.
local function has_failed(timer)
  if string.find(timer, '^[%%&].') then redis.call('ZADD', key.timers, 'NX', now + AFTER_FAILURE, timer) end
  return tonumber(redis.call('ZSCORE', key.timers, timer) or now + 1) <= now
end

-- Mend jobs whose timers do not fit their records. Returns how many timers stay.
local function mend_timers(odd)
  local at, stay = 0, 0
  go_on_after_failures(function()
    while at < #odd do
      at = at + 1
      if redis.call('ZSCORE', key.timers, odd[at]) and not mend(odd[at]) then stay = stay + 1 end
    end
    settle()
  end, function() stay = stay + 1 end)
  return stay
end

-- Meet all of some timers. Returns how many of them stay.
local function meet_all(due, queues)
  local at, stay, odd = 0, 0, {}
  go_on_after_failures(function()
    while at < #due do
      at = at + 1
      if meet(due[at], queues, odd) then stay = stay + 1 end
    end
    settle()
  end, function()
    if due[at] and has_failed(due[at]) then stay = stay + 1 end
  end)
  return #odd == 0 and stay or stay + mend_timers(odd)
end

local LEFT_OVER = { after.go_on, limit.go_on } -- by earlier calls

-- Make due jobs waiting, and end leases that ended. Timers of jobs that cannot be read stay, and those behind them are met.
-- `served`: the queues of the caller, if it has any.
local function advance(served)
  if signs.resolving or signs.changed then do_all(LEFT_OVER) end
  local met, stay, queues = 0, 0, {}
  while met < STEP and stay < MAX_BATCH do
    local due = redis.call('ZRANGEBYSCORE', key.timers, '-inf', now, 'LIMIT', stay, STEP)
    local more = meet_all(due, queues)
    met, stay = met + #due - more, stay + more
    if more == 0 then break end
  end
  budget.unreadable = stay
  for queue in pairs(queues) do wake(queue) end
  if signs.surplus or math.abs(now - meta.pruned) >= PRUNE_EVERY then
    do_all({ function() prune_in_turn(served or {}) end })
  end
end

core.beat, core.advance = beat, advance
