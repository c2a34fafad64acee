-- prune: delete ended jobs that exceed the retention of their queue, by age or by count, or their own time to live.

local AWAITED, EXPIRES, FINAL, UNIQUE = core.AWAITED, core.EXPIRES, core.FINAL, core.UNIQUE
local delete_job, dependencies, emit, expiry = core.delete_job, core.dependencies, core.emit, core.expiry
local flush, has, load_scratch_job = core.flush, core.has, core.load_scratch_job
local loop_despite_errors, release_key, repair = core.loop_despite_errors, core.release_key, core.repair
local outcomes, setting, time_of_removal = core.outcomes, core.setting, core.time_of_removal
local MAX_BATCH = constants.MAX_BATCH

-- Delete a job with its long values, and with its dependents' index unless they are still being resolved.
local function erase_ended(job, payload, result)
  local id, more = job.id, {}
  if job.flags > 0 then
    if has(job.flags, UNIQUE) then release_key(job, 'k') end
    if has(job.flags, AWAITED) then
      outcomes.remember(job, job.state)
      if not dependencies.is_resolving(id) then more[1] = key.dependents(id) end
    end
  end
  if payload == '>' then more[#more + 1] = key.blob('p', id) end
  if result == '>' then more[#more + 1] = key.blob('r', id) end
  emit('deleted', job)
  delete_job(job, unpack(more))
end

-- Handle up to `max` jobs that `find(skipped, max)` returns, oldest first. `handle` returns whether the job stays where it
-- is because it cannot be read. Flush first. Returns how many do not stay.
local function sweep(max, find, handle)
  local skipped, handled = 0, 0
  while handled < max and skipped < MAX_BATCH do
    local ids, at, stay = find(skipped, max - handled), 0, 0
    if #ids == 0 then break end
    loop_despite_errors(function()
      while at < #ids do
        at = at + 1
        if handle(ids[at]) then stay = stay + 1 end
      end
    end, function() stay = stay + 1 end)
    flush()
    skipped, handled = skipped + stay, handled + #ids - stay
    if stay == 0 then break end
  end
  return handled
end

-- Set a job aside that outlives the setting of its queue, so that pruning by age does not meet it again.
local function set_aside(job, time)
  redis.call('ZADD', key.index[job.queue][job.state], job.since - expiry.SET_ASIDE, job.id)
  redis.call('ZADD', key.expiring(), 'NX', time, job.id)
end

-- Returns whether the job stays because it cannot be read.
local function prune_one(id, queue, state, is_excess)
  local job, payload, result = load_scratch_job(id, 'p', 'r')
  if not job or job.state ~= state or job.queue ~= queue then return not repair(id, key.index[queue][state]) end
  if not is_excess and has(job.flags, EXPIRES) then
    local time = time_of_removal(job)
    if time > now then return set_aside(job, time) end
  end
  erase_ended(job, payload, result)
  return false
end

-- Delete up to `max` ended jobs of a queue: first those beyond the maximum number, then those beyond the maximum age.
-- Flush first. Returns how many were deleted, or set aside.
local function prune(queue, state, max)
  local index, most = key.index[queue][state], setting('keep_' .. state .. '_count', queue)
  local function find_excess(skipped, limit)
    local over = math.min(redis.call('ZCARD', index) - most - skipped, limit)
    return over > 0 and redis.call('ZRANGE', index, skipped, skipped + over - 1) or {}
  end
  local function find_aged(skipped, limit)
    return redis.call('ZRANGEBYSCORE', index, 0, now - setting('keep_' .. state, queue), 'LIMIT', skipped, limit)
  end
  local removed = sweep(max, find_excess, function(id) return prune_one(id, queue, state, true) end)
  return removed + sweep(max - removed, find_aged, function(id) return prune_one(id, queue, state) end)
end

-- Returns whether the job stays because it cannot be read.
local function expire_one(id)
  local job, payload, result = load_scratch_job(id, 'p', 'r')
  if not job and payload ~= 'NOTFOUND' then return true end
  if not job or not FINAL[job.state] or not has(job.flags, EXPIRES) then
    redis.call('ZREM', key.expiring(), id)
    return false
  end
  local time = time_of_removal(job)
  if time > now then redis.call('ZADD', key.expiring(), time, id) else erase_ended(job, payload, result) end
  return false
end

-- Delete up to `max` jobs whose own time to live is over. Flush first. Returns how many were handled.
local function erase_expired(max)
  return sweep(max, function(skipped, limit)
    return redis.call('ZRANGEBYSCORE', key.expiring(), '-inf', now, 'LIMIT', skipped, limit)
  end, expire_one)
end

core.prune, core.erase_expired = prune, erase_expired
