-- transitions: the only place where a job changes its state.
--
-- A job's record is written immediately. Changes of indexes are collected and written by `flush`, with one command per index
-- for any number of jobs. Flush before reading an index after a move.

local AFTER, EXPIRES, EXTRA, FINAL, INDEXED = core.AFTER, core.EXPIRES, core.EXTRA, core.FINAL, core.INDEXED
local collect, has = core.collect, core.has
local pack_new, pack_status, time_of_removal = core.pack_new, core.pack_status, core.time_of_removal

-- Count a job that became claimable; see throughput.lua.
local function count_arrival(queue)
  local count = arrival_counts[queue]
  if not count then arrival_counts[#arrival_counts + 1] = queue end
  arrival_counts[queue] = (count or 0) + 1
end

-- Have `flush` wake an executor of this queue.
local function wake_later(queue)
  if not queues_to_wake[queue] then queues_to_wake[queue], queues_to_wake[#queues_to_wake + 1] = true, queue end
end

-- Have `flush` tell pools that a queue may have jobs to claim.
local function note_ready(queue)
  if not queues_ready[queue] then queues_ready[queue], queues_ready[#queues_ready + 1] = true, queue end
end

-- A successful call leaves nothing collected, so new tables are needed only after a failed one.
local function begin_call(last_call_succeeded)
  if not last_call_succeeded or #index_removals + #index_additions + #held_additions + #held_removals + #to_resolve
    + #queues_to_wake + #queues_ready + #arrival_counts + #pending_events + #changed_failures + #member_changes > 0 then
    changed_failures, index_removals, index_additions, held_additions, held_removals = {}, {}, {}, {}, {}
    to_resolve, queues_to_wake, queues_ready, arrival_counts, pending_events, budget, member_changes = {}, {}, {}, {}, {}, {}, {}
    claim_in_progress = nil
  end
  known_queues = {}
  budget.unparked = 1000
  budget.inspected = 1000
  budget.resolved = 1000
  budget.completed = 20
  budget.fired = 200
  budget.steps = 1 -- of operations
  unreadable_timers, call_failed, full_limits, changed_counts = 0, false, nil, nil
end

local function apply(command, batch)
  for place = 1, #batch do
    local where = batch[place]
    local list = batch[where]
    -- In parts, as `unpack` fails for thousands of values. Parts have an even size, which keeps pairs together.
    for first = 1, #list, 2000 do
      redis.call(command, where, unpack(list, first, math.min(first + 1999, #list)))
    end
    batch[place], batch[where] = nil, nil
  end
end

local function apply_changes()
  apply('ZREM', index_removals)
  apply('ZADD', index_additions)
  apply('HDEL', held_removals)
  apply('HSET', held_additions)
  if #changed_failures > 0 then core.failures.set_names() end
end

local function mark_ready()
  for place = 1, #queues_ready do
    local queue = queues_ready[place]
    queues_ready[place], queues_ready[queue] = nil, nil
    core.queue_sets.mark_ready(queue)
  end
end

-- Write the collected changes, then resolve the dependents of jobs that ended, then complete their batches. A dependent may
-- have been stored by this very call, so it must be in its index first.
local function flush()
  apply_changes()
  if #to_resolve > 0 then
    core.resolve_all()
    apply_changes()
  end
  if #member_changes > 0 then core.batches.settle() end
  core.store_arrivals()
  if #queues_ready > 0 then mark_ready() end
  for place = 1, #queues_to_wake do
    local queue = queues_to_wake[place]
    queues_to_wake[place], queues_to_wake[queue] = nil, nil
    core.wake_executor(queue)
  end
end

-- As above, for a batch that may be partly applied; an error for one key does not affect the others.
local function apply_each(command, batch)
  for where, list in pairs(batch) do
    if type(where) == 'string' then pcall(apply, command, { where, [where] = list }) end
  end
end

-- After an error: complete the changes of jobs whose records were written, and leave the rest to later calls.
local function flush_after_error()
  apply_each('ZREM', index_removals)
  apply_each('ZADD', index_additions)
  apply_each('HDEL', held_removals)
  apply_each('HSET', held_additions)
  pcall(core.failures.set_names)
  for place = (to_resolve.started or 0) + 1, #to_resolve do pcall(core.dependencies.save_position, unpack(to_resolve[place])) end
  index_removals, index_additions, held_additions, held_removals, to_resolve, queues_to_wake, arrival_counts = {}, {}, {}, {}, {}, {}, {}
  if #member_changes > 0 then pcall(core.batches.settle) end
  pcall(mark_ready)
  queues_ready = {}
end

-- A job with a time to live of its own ends, or an ended one starts again.
local function track_expiry(job, before)
  if FINAL[job.state] then
    collect(index_additions, key.expiring(), time_of_removal(job), job.id)
  elseif FINAL[before] then
    collect(index_removals, key.expiring(), job.id)
  end
end

-- A queue that was at its concurrency has room again.
local function leave_running(queue)
  if core.setting('concurrency', queue) > 0 then note_ready(queue) end
end

-- Move a job to a state with this score in its index, this timer (or none), and these fields of its record.
local function move(job, state, score, timer, ...)
  local id, index, before = job.id, key.index[job.queue], job.state
  job.state, job.since = state, now
  redis.call('HSET', key.job(id), 's', pack_status(job), ...) -- first: collected changes must not be ahead of the record
  if before then
    collect(index_removals, index[before], id)
    if not timer and (before == 'scheduled' or before == 'running') then collect(index_removals, key.timers, id) end
    if markers.pools and before == 'running' then leave_running(job.queue) end
  end
  collect(index_additions, index[state], score, id)
  if timer then collect(index_additions, key.timers, timer, id) end
  if job.flags >= EXPIRES and has(job.flags, EXPIRES) then track_expiry(job, before) end
  if state == 'failed' then core.failures.add(job, job.group, job.fingerprint) end -- set by `fail_job`
end

-- Waiting jobs are ordered by priority, then by arrival; a double is exact up to 2^44 arrivals. Most new jobs take this
-- short path.
local PRIORITY_STEP = 2 ^ 44
local function insert_waiting(id, queue, priority, arrival, ...)
  redis.call('HSET', key.job(id), 's', pack_new('waiting', arrival), ...)
  collect(index_additions, key.index[queue].waiting, priority * PRIORITY_STEP + arrival, id)
  if markers.pools then note_ready(queue) end
  count_arrival(queue)
end

local function to_waiting(job, fields)
  if job.state ~= 'waiting' and job.state ~= 'throttled' then count_arrival(job.queue) end
  if markers.pools then note_ready(job.queue) end
  move(job, 'waiting', job.priority * PRIORITY_STEP + job.arrival, nil, unpack(fields or {}))
end

local function to_scheduled(job, due, fields) move(job, 'scheduled', due, due, unpack(fields or {})) end

-- Delete a job, all its keys, and up to two more. Its index entries are removed by the next flush.
local function delete_job(job, ...)
  local id, flags = job.id, job.flags
  if job.state == 'failed' then core.failures.remove(job) end
  if flags > 0 and has(flags, EXTRA) then
    redis.call('DEL', key.errors(id), key.notes(id), key.fields(id), key.steps(id), key.log(id), key.blob('c', id), key.blob('f', id))
  end
  if flags > 0 and has(flags, AFTER) then redis.call('DEL', key.after(id)) end
  if flags >= INDEXED and has(flags, INDEXED) then core.marks.remove(job) end
  redis.call('DEL', key.job(id), ...)
  if not job.state then return end -- it is in no index
  collect(index_removals, key.index[job.queue][job.state], id)
  if job.state == 'scheduled' or job.state == 'running' then collect(index_removals, key.timers, id) end
  if markers.pools and job.state == 'running' then leave_running(job.queue) end
  if flags >= EXPIRES and has(flags, EXPIRES) and FINAL[job.state] then collect(index_removals, key.expiring(), id) end
end

core.begin_call, core.wake_later, core.flush = begin_call, wake_later, flush
core.note_ready, core.leave_running = note_ready, leave_running
core.move, core.PRIORITY_STEP, core.insert_waiting, core.to_waiting = move, PRIORITY_STEP, insert_waiting, to_waiting
core.to_scheduled, core.delete_job, core.flush_after_error = to_scheduled, delete_job, flush_after_error
core.apply_each = apply_each
