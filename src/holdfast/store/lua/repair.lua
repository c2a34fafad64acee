-- repair: make indexes agree with a job's record.
--
-- The record is authoritative. An entry in an index, a timer, a hold or a parked entry is only a hint: code that reaches a job
-- through one compares it with the record, and calls `repair` if they differ. Repairing never acts on the job itself. Entries
-- without a record are removed, and dependents of a missing job are resolved as if it had been cancelled. A record that
-- cannot be read stays where it is, for a release that can.
--
-- Calls that advance time also check random entries of each queue, to find those that nothing else leads to.

local AFTER, CANCELLING, EXPIRES, FINAL = core.AFTER, core.CANCELLING, core.EXPIRES, core.FINAL
local INDEXED, NO_EXECUTOR, marks, time_of_removal = core.INDEXED, core.NO_EXECUTOR, core.marks, core.time_of_removal
local PRIORITY_STEP, STATES, current_attempt = core.PRIORITY_STEP, core.STATES, core.current_attempt
local dependencies, failures, flush, has = core.dependencies, core.failures, core.flush, core.has
local limits, load_job, note_ready, pack_hold = core.limits, core.load_job, core.note_ready, core.pack_hold
local register_queue, wake_later = core.register_queue, core.wake_later
local MIN_LEASE = constants.MIN_LEASE
local BLOB_LETTERS = { 'p', 'r', 'c', 'f', 'm' }

local SAMPLE, SAMPLES, PARENTS = 5, 20, 20 -- entries per sample, samples per index, and dependencies checked of a blocked job

-- Remove what is left of a job without a record.
local function forget(id, index)
  if index then redis.call('ZREM', index, id) end
  redis.call('ZREM', key.timers, id, '!' .. id)
  redis.call('ZREM', key.expiring(), id)
  for _, letter in ipairs(BLOB_LETTERS) do redis.call('DEL', key.blob(letter, id)) end
  redis.call('DEL', key.errors(id), key.notes(id), key.fields(id), key.after(id), key.steps(id), key.log(id))
  dependencies.resolve_missing(id)
end

local function score_of(job, place)
  if job.state == 'waiting' or job.state == 'throttled' then return job.priority * PRIORITY_STEP + job.arrival end
  if job.state == 'scheduled' then
    return tonumber(redis.call('ZSCORE', key.timers, job.id) or redis.call('ZSCORE', place, job.id) or now)
  end
  return job.since
end

-- Make sure that a running job has a lease, and a hold of its executor.
local function restore_lease(job)
  local lease, run = math.max(job.lease, MIN_LEASE), current_attempt(job)
  if not redis.call('ZSCORE', key.timers, job.id) then redis.call('ZADD', key.timers, now + lease, job.id) end
  if run.executor == NO_EXECUTOR then return end
  redis.call('HSETNX', key.held(run.executor), job.id, pack_hold(job.attempt, has(job.flags, CANCELLING), 0, lease))
end

-- Make sure that a job with a time to live of its own is removed when it is over, if it has ended.
local function restore_expiry(job)
  if not FINAL[job.state] then return redis.call('ZREM', key.expiring(), job.id) end
  redis.call('ZADD', key.expiring(), 'NX', time_of_removal(job), job.id)
end

local function restore_indexes(job, found_in)
  local id, indexes = job.id, key.index[job.queue]
  local place = indexes[job.state]
  local score = score_of(job, place)
  if found_in and found_in ~= place then redis.call('ZREM', found_in, id) end
  for _, state in ipairs(STATES) do
    if state ~= job.state then redis.call('ZREM', indexes[state], id) end
  end
  redis.call('ZADD', place, score, id)
  register_queue(job.queue)
  if has(job.flags, EXPIRES) then restore_expiry(job) end
  if job.state == 'failed' then failures.restore(job) end
  if has(job.flags, INDEXED) then marks.restore(job) end
  if job.state == 'running' then return restore_lease(job) end
  if job.state == 'scheduled' then return redis.call('ZADD', key.timers, score, id) end
  redis.call('ZREM', key.timers, id)
  if job.state == 'throttled' then limits.restore_parked(job, score) end
  if job.state == 'waiting' then
    if markers.pools then note_ready(job.queue) end
    wake_later(job.queue)
  end
end

-- `found_in`: the index that led to the job, if any. Returns whether the entry is now correct or removed.
local function repair(id, found_in)
  flush() -- the job may have been moved by this call
  local job, fault = load_job(id)
  if job then
    restore_indexes(job, found_in)
  elseif fault == 'NOTFOUND' then
    forget(id, found_in)
  else
    return false
  end
  return true
end

-- `group`, `fingerprint`: fields of its record.
local function is_consistent(job, queue, state, group, fingerprint)
  if not job or job.state ~= state or job.queue ~= queue then return false end
  if has(job.flags, INDEXED) and not marks.is_indexed(job) then return false end
  if state == 'running' or state == 'scheduled' then return redis.call('ZSCORE', key.timers, job.id) end
  if state == 'failed' and not failures.is_listed(job, group, fingerprint) then return false end
  if FINAL[state] then return not has(job.flags, EXPIRES) or redis.call('ZSCORE', key.expiring(), job.id) end
  return state ~= 'throttled' or limits.is_parked(job)
end

-- Check whether dependencies of a blocked job are gone or have ended without resolving it.
local function check_parents(job)
  local marks = redis.call('HRANDFIELD', key.after(job.id), PARENTS, 'WITHVALUES')
  for at = 1, #marks, 2 do
    local _, letter = dependencies.parse_edge(marks[at + 1])
    if letter == '-' then dependencies.resolve_missed(job.id, marks[at]) end
  end
end

-- Check a sample of an index against the records. Returns whether any entry was repaired.
local function repair_sample(queue, state)
  local index, is_repaired = key.index[queue][state], false
  for _, id in ipairs(redis.call('ZRANDMEMBER', index, SAMPLE)) do
    local job, group, fingerprint = load_job(id, 'g', 'v')
    if not is_consistent(job, queue, state, group, fingerprint) then
      is_repaired = repair(id, index) or is_repaired
    elseif has(job.flags, AFTER) and state == 'blocked' then
      check_parents(job)
    end
  end
  flush()
  return is_repaired
end

local CHECKED, ENDED = { 'running', 'scheduled', 'blocked', 'throttled', 'failed' }, { 'succeeded', 'cancelled' }

local function repair_states(queue, states)
  for _, state in ipairs(states) do
    local left = SAMPLES
    while left > 0 and repair_sample(queue, state) do left = left - 1 end
  end
end

-- Check some entries of a queue; where one is wrong, others may be. Waiting jobs are checked when they are claimed, and
-- those that succeeded or were cancelled when they are pruned; unless some expire, which are checked here.
local function repair_queue(queue, some_expire)
  repair_states(queue, CHECKED)
  if some_expire then repair_states(queue, ENDED) end
end

-- Register queues again whose names are lost although they have jobs.
local function restore_queues(queues)
  if #queues == 0 then return end
  local scores = redis.call('ZMSCORE', key.queues(), unpack(queues))
  for place, queue in ipairs(queues) do
    if not scores[place] then
      local indexes = {}
      for at, state in ipairs(STATES) do indexes[at] = key.index[queue][state] end
      if redis.call('EXISTS', unpack(indexes)) > 0 then register_queue(queue) end
    end
  end
end

core.repair, core.repair_queue, core.restore_queues = repair, repair_queue, restore_queues
