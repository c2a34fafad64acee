-- prune: delete ended jobs that exceed the retention of their queue, by age or by count.

local AWAITED, UNIQUE, delete_job, dependencies = core.AWAITED, core.UNIQUE, core.delete_job, core.dependencies
local emit, flush, has, load_scratch_job = core.emit, core.flush, core.has, core.load_scratch_job
local loop_despite_errors, release_key, repair = core.loop_despite_errors, core.release_key, core.repair
local setting = core.setting
local MAX_BATCH = constants.MAX_BATCH

-- Delete a job with its long values, and with its dependents' index unless they are still being resolved.
local function erase_ended(job, payload, result)
  local id, more = job.id, {}
  if job.flags > 0 then
    if has(job.flags, UNIQUE) then release_key(job, 'k') end
    if has(job.flags, AWAITED) and not dependencies.is_resolving(id) then more[1] = key.dependents(id) end
  end
  if payload == '>' then more[#more + 1] = key.blob('p', id) end
  if result == '>' then more[#more + 1] = key.blob('r', id) end
  delete_job(job, unpack(more))
  emit('deleted', id)
end

-- Returns whether the job stays because it cannot be read.
local function prune_one(id, queue, state)
  local job, payload, result = load_scratch_job(id, 'p', 'r')
  if not job or job.state ~= state or job.queue ~= queue then return not repair(id, key.index[queue][state]) end
  erase_ended(job, payload, result)
  return false
end

-- Find jobs beyond the retention limits, oldest first, after the first `skipped`.
local function find_surplus(queue, state, skipped, max)
  local index = key.index[queue][state]
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', now - setting('keep_' .. state, queue), 'LIMIT', skipped, max)
  local over = math.min(redis.call('ZCARD', index) - setting('keep_' .. state .. '_count', queue) - skipped, max)
  if over > #old then old = redis.call('ZRANGE', index, skipped, skipped + over - 1) end
  return old
end

-- Delete up to `max` ended jobs of a queue. Flush first. Returns how many were deleted.
local function prune(queue, state, max)
  local skipped, removed = 0, 0
  while removed < max and skipped < MAX_BATCH do
    local ids, at, stay = find_surplus(queue, state, skipped, max - removed), 0, 0
    if #ids == 0 then break end
    loop_despite_errors(function()
      while at < #ids do
        at = at + 1
        if prune_one(ids[at], queue, state) then stay = stay + 1 end
      end
    end, function() stay = stay + 1 end)
    flush()
    skipped, removed = skipped + stay, removed + #ids - stay
    if stay == 0 then break end
  end
  return removed
end

core.prune = prune
