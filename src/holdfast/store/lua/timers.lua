-- timers: process due timers, a bounded number in each call. Claims and renewals do this, so no scheduler process is needed.

local FINAL, SCHEMA, assign_arrival, deadlines = core.FINAL, core.SCHEMA, core.assign_arrival, core.deadlines
local dependencies, erase_expired, expire_lease, fair_shares = core.dependencies, core.erase_expired, core.expire_lease, core.fair_shares
local flush, limits, load_job, loop_despite_errors = core.flush, core.limits, core.load_job, core.loop_despite_errors
local outages, prune, queue_sets, repair = core.outages, core.prune, core.queue_sets, core.repair
local repair_queue = core.repair_queue
local restore_queues, run_all, set_marker = core.restore_queues, core.run_all, core.set_marker
local to_waiting, wake_executor = core.to_waiting, core.wake_executor
local MAX_BATCH, MIN_LEASE = constants.MAX_BATCH, constants.MIN_LEASE

local MAX_TIMERS = 100 -- handled per call
local FAILED_TIMER_DELAY = 60000 -- milliseconds until a timer that failed is processed again
local PRUNE_INTERVAL, PRUNE_QUEUES, PRUNE_JOBS = 1000, 10, 500

-- After the clock went back: no lease may end later than a full lease from now, and no outage lies in the future. This
-- must happen in one call for all queues, as the next call would not notice; it covers up to 10,000 leases.
local function shorten_leases()
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
  local known = outages.parse()
  for _, outage in ipairs(known) do outage.ended = math.min(outage.ended, now) end
  outages.store(known)
end

-- Record since when the data exists: workers notice by this that the store has lost what they declared.
local function set_since(time)
  redis.call('HSET', key.meta, 'since', string.format('%.0f', time))
  meta.since = time
end

-- Record that the store is available, and for how long it was not.
local function record_pulse()
  local gap = meta.pulse and now - meta.pulse or 0
  if gap > MIN_LEASE / 2 then outages.add(gap) elseif gap < 0 then shorten_leases() end
  if not meta.since then set_since(now) end
  redis.call('HSET', key.meta, 'schema', SCHEMA, 'pulse', now)
  meta.new = false
end

-- Prune up to `left` jobs of a queue, and repair some entries if that was all. Returns how many more may be pruned.
local function prune_queue(queue, left, some_expire)
  for state in pairs(FINAL) do left = left - prune(queue, state, left) end
  if left > 0 then
    fair_shares.prune(queue)
    repair_queue(queue, some_expire)
    if markers.pools and redis.call('EXISTS', key.index[queue].waiting) == 1 then queue_sets.mark_ready(queue) end
  end
  return left
end

-- Remove up to `left` jobs whose own time to live is over. Returns how many more may be removed, and whether some jobs
-- have such a time.
local function remove_expired(left)
  local first = redis.call('ZRANGE', key.expiring(), 0, 0, 'WITHSCORES')
  if not first[1] then return left, false end
  return tonumber(first[2]) <= now and left - erase_expired(left) or left, true
end

-- Prune the next queues once a second, or in each call while more jobs are left than one call may delete.
local function prune_next_queues(served)
  restore_queues(served)
  local last = redis.call('HGET', key.meta, 'prune_after') or ''
  local queues = redis.call('ZRANGEBYLEX', key.queues(), '(' .. last, '+', 'LIMIT', 0, PRUNE_QUEUES)
  local at, done = 0, #queues == PRUNE_QUEUES and queues[#queues] or ''
  local left, some_expire = PRUNE_JOBS, false
  run_all({ function() left, some_expire = remove_expired(left) end })
  loop_despite_errors(function()
    while at < #queues and left > 0 do
      at = at + 1
      left = prune_queue(queues[at], left, some_expire)
    end
  end)
  if left <= 0 then done = queues[at - 1] or last end
  run_all({ limits.repair_some, core.failures.repair_some, core.repair_schedules, core.repair_marks, core.batches.maintain,
    core.operations.expire, queue_sets.prune, flush, function() core.bound_events(meta.pruned) end, core.check.maintain })
  if (left <= 0) ~= (markers.surplus ~= nil) then set_marker('surplus', left <= 0 and 1 or nil) end
  redis.call('HSET', key.meta, 'pruned', now, 'prune_after', done)
end

-- Handle a timer that is not a job's: `%` and a limit, `=` and the name of a limit that was set for some time, `&` and a
-- schedule, `!` and the id of a job with a deadline. No id begins with these characters. Returns whether the timer
-- stays.
local function fire_timer(kind, name)
  if kind == '!' then
    flush() -- the job may have been moved by this call
    return deadlines.on_timer(name)
  end
  redis.call('ZREM', key.timers, kind .. name)
  if kind == '%' then
    limits.unpark(name)
  elseif kind == '=' then
    core.expire_limit(name)
  else
    core.fire(name)
  end
  return false
end

-- Handle a due timer. Returns whether it stays because the job cannot be read. A job whose record does not fit its
-- timer is added to `odd`: it may have been moved by this call, for example by its deadline.
local function handle_timer(id, queues, odd)
  local kind, name = string.match(id, '^([%%=&!])(.+)$')
  if kind then return fire_timer(kind, name) end
  local job = load_job(id)
  if job and job.state == 'scheduled' then
    assign_arrival(job)
    to_waiting(job)
  elseif job and job.state == 'running' then
    expire_lease(job)
  else
    odd[#odd + 1] = id
    return false
  end
  queues[job.queue] = true
  return false
end

-- After an error: timers of schedules and limits were removed before, so they are set again. Returns whether the timer
-- is still due.
local function has_failed(timer)
  if string.find(timer, '^[%%=&].') then redis.call('ZADD', key.timers, 'NX', now + FAILED_TIMER_DELAY, timer) end
  return tonumber(redis.call('ZSCORE', key.timers, timer) or now + 1) <= now
end

-- Repair jobs whose timers do not fit their records. Returns how many timers stay.
local function repair_timers(odd)
  local at, stay = 0, 0
  loop_despite_errors(function()
    while at < #odd do
      at = at + 1
      if redis.call('ZSCORE', key.timers, odd[at]) and not repair(odd[at]) then stay = stay + 1 end
    end
    flush()
  end, function() stay = stay + 1 end)
  return stay
end

-- Handle due timers. Returns how many of them stay.
local function handle_timers(due, queues)
  local at, stay, odd = 0, 0, {}
  loop_despite_errors(function()
    while at < #due do
      at = at + 1
      if handle_timer(due[at], queues, odd) then stay = stay + 1 end
    end
    flush()
  end, function()
    if due[at] and has_failed(due[at]) then stay = stay + 1 end
  end)
  return #odd == 0 and stay or stay + repair_timers(odd)
end

local UNFINISHED_WORK = { dependencies.continue_resolving, limits.continue_reviews } -- left by earlier calls

-- Make due jobs waiting and expire leases. Timers of unreadable jobs are skipped. `served`: the caller's queues, if
-- any.
local function advance(served)
  if markers.resolving or markers.changed then run_all(UNFINISHED_WORK) end
  if markers.ending then run_all({ core.batches.continue_completing }) end
  local met, stay, queues = 0, 0, {}
  while met < MAX_TIMERS and stay < MAX_BATCH do
    local due = redis.call('ZRANGEBYSCORE', key.timers, '-inf', now, 'LIMIT', stay, MAX_TIMERS)
    local more = handle_timers(due, queues)
    met, stay = met + #due - more, stay + more
    if more == 0 then break end
  end
  unreadable_timers = stay
  for queue in pairs(queues) do wake_executor(queue) end
  if markers.surplus or math.abs(now - meta.pruned) >= PRUNE_INTERVAL then
    run_all({ function() prune_next_queues(served or {}) end })
  end
  if markers.operations then run_all({ core.operations.continue_some }) end
end

core.record_pulse, core.set_since, core.advance = record_pulse, set_since, advance
