-- enqueue: store jobs, all or none.
--
--   args.batches    lists of jobs that differ only in id and payload, each with
--     count         number of jobs (1)
--     queue, task   names
--     priority      -256 to 255, lower runs first (0)
--     delay, at     milliseconds from now, or a time (default: now)
--     retries, crashes, lost, backoff, timeout, codec, timeouts, stalls, out_of_memory    see record.lua and budgets.lua
--     run           options that only workers read, as text
--     unique        a unique key; a batch with a key has one job
--     unique_for    for how long it owns the key: 'queued', 'pending' (default), 'kept' or milliseconds; see unique_keys.lua
--     keep          false: delete the job when it ends, unless it fails; milliseconds, at least 1,000: keep it for this time
--                   after its end; see expiry.lua
--     fields        table of names and texts to store with the job; see fields.lua
--     at_most_once  true: never start it a second time, except by `retry`
--     deadline      milliseconds from now, or deadline_at, a time: no attempt may start later; see deadlines.lua
--     share         its share of the queue, such as a tenant; see shares.lua
--     tags          up to 32 texts of up to 64 bytes; see marks.lua
--     scope         a path such as /tenant/7
--     batch         the name of an open batch; see batches.lua
--     limits        names of up to 8 limits, as `name` or `name:key`; see limits.lua
--     after         ids of dependencies, existing or in this call; common to all jobs of the batch
--     on_failed     if a dependency fails or is cancelled: 'block' (default: stay blocked), 'cancel' or 'run'
--   args.on_exists  if the id or the unique key is taken: 'return' (default: leave the existing job), 'error' or 'replace'
--   args.fresh      true: the ids were generated for this call, so if they exist, the call is a repetition
--   args.adder      the id of the running job that makes this call, which may add to the closed batch that it belongs to
--   args.token      with 'error', 'replace', `fresh`, or `keep`: see call.lua
--   blobs           the ids of all jobs, separated by spaces; then the payloads, in the same order
--
-- Errors: INVALID; TOOBIG; NOTFOUND and CYCLE for dependencies; BLOCKED if a job with dependencies would replace one with
-- dependents; NOBATCH; STATE if a batch takes no more jobs; EXISTS with on_exists = 'error', if a third job owns the key or reuses the id of its owner, or if only some of
-- the jobs of a fresh call exist; STATE if a job to be replaced is running.
--
-- Returns the server's time, then for each job 1 if it was stored, 0 if its id exists, '+id' if it replaced the owner of its
-- key, '=id' if that owner was left alone. A replaced job keeps its id.

local AFTER, AT_MOST_ONCE, AWAITED, CODEC_NUMBER = core.AFTER, core.AT_MOST_ONCE, core.AWAITED, core.CODEC_NUMBER
local EXPIRES, EXTRA, FAIR, FINAL, LETTER_OF_SPAN = core.EXPIRES, core.EXTRA, core.FAIR, core.FINAL, core.LETTER_OF_SPAN
local INDEXED, LIMITED, marks, own_fields = core.INDEXED, core.LIMITED, core.marks, core.own_fields
local NOT_KEPT, UNIQUE, acquire_key, budgets, cache_args = core.NOT_KEPT, core.UNIQUE, core.acquire_key, core.budgets, core.cache_args
local check_distinct_ids, check_id, check_integer = core.check_distinct_ids, core.check_id, core.check_integer
local check_list, check_name, check_optional = core.check_list, core.check_name, core.check_optional
local check_queue, collect, deadlines, delete_job = core.check_queue, core.collect, core.deadlines, core.delete_job
local dependencies, drop_deadline, emit = core.dependencies, core.drop_deadline, core.emit
local fair_shares, flush, has, insert_waiting = core.fair_shares, core.flush, core.has, core.insert_waiting
local limits, load_job, notify_waiters, outcomes = core.limits, core.load_job, core.notify_waiters, core.outcomes
local owner_of = core.owner_of
local pack_head, pack_spec, publish_events, refuse = core.pack_head, core.pack_spec, core.publish_events, core.refuse
local register, register_queue, release_key = core.register, core.register_queue, core.release_key
local require_job, reserve_arrivals, store_blob = core.require_job, core.reserve_arrivals, core.store_blob
local to_scheduled, to_waiting, unlink, wake_later = core.to_scheduled, core.to_waiting, core.unlink, core.wake_later
local with = core.with
local MAX_BATCH, MAX_DEPENDENCIES = constants.MAX_BATCH, constants.MAX_DEPENDENCIES
local MAX_DURATION, MAX_IDLE_WAIT = constants.MAX_DURATION, constants.MAX_IDLE_WAIT
local MAX_FIELDS_OF_CALL, MAX_PAYLOAD, MIN_KEEP = constants.MAX_FIELDS_OF_CALL, constants.MAX_PAYLOAD, constants.MIN_KEEP

local EXISTS = { ['return'] = true, ['error'] = true, ['replace'] = true }

local function due_time(batch)
  local due = batch.at or (batch.delay and now + batch.delay)
  return due and due > now and due or nil
end

local function check_unique(batch)
  if batch.unique == nil then return end
  check_name(batch.unique, 'a unique key', constants.MAX_ID, '%w._:@/%-')
  if #batch.ids ~= 1 then refuse('INVALID', 'a batch with a unique key must have one job') end
  batch.unique_for = batch.unique_for or 'pending'
  if not LETTER_OF_SPAN[batch.unique_for] then
    if type(batch.unique_for) ~= 'number' then
      refuse('INVALID', "`unique_for` must be 'queued', 'pending', 'kept' or milliseconds")
    end
    check_integer(batch.unique_for, '`unique_for`', 1, MAX_DURATION)
  end
end

local function check_limits(names)
  if #check_list(names, 'limits', 0) > constants.MAX_LIMITS_PER_JOB then
    refuse('INVALID', string.format('a job can have at most %d limits', constants.MAX_LIMITS_PER_JOB))
  end
  local seen = {}
  for _, limit in ipairs(names) do
    if seen[limit] then refuse('INVALID', 'limit ' .. tostring(limit) .. ' occurs twice in `limits`') end
    seen[limit] = true
    local key_of = string.match(tostring(limit), '^[^:]+:(.*)$')
    check_name(limits.name_of(tostring(limit)), 'a limit', constants.MAX_KEY, '%w_.%-')
    if key_of then check_name(key_of, 'the key of a limit', constants.MAX_KEY, '%w._@/%-') end
  end
end

local function check_times(batch)
  check_optional(batch.delay, 'the delay', 0, MAX_DURATION)
  check_optional(batch.at, 'the due time', 0, now + MAX_DURATION)
  check_optional(batch.deadline, 'the deadline', 1, MAX_DURATION)
  check_optional(batch.deadline_at, 'the time of the deadline', 0, now + MAX_DURATION)
  local due, deadline_at = due_time(batch), batch.deadline_at or (batch.deadline and now + batch.deadline)
  if due and deadline_at and deadline_at <= due then refuse('INVALID', 'the deadline must be later than the due time') end
end

local function check_keep(keep)
  if type(keep) == 'boolean' or keep == nil then return end
  check_integer(keep, '`keep`, unless it is true or false,', MIN_KEEP, MAX_DURATION)
end

local function check_batch(batch)
  check_queue(batch.queue)
  check_name(batch.task, 'a task', constants.MAX_NAME, '%w_.:%-')
  check_list(batch.ids, 'the ids of a batch')
  check_optional(batch.priority, 'the priority', constants.MIN_PRIORITY, constants.MAX_PRIORITY)
  check_optional(batch.retries, 'retries', 0, constants.MAX_RETRIES)
  check_optional(batch.crashes, 'crashes', 0, constants.MAX_RETRIES)
  check_optional(batch.lost, 'lost', 0, constants.MAX_RETRIES)
  if batch.timeouts or batch.stalls or batch.out_of_memory then budgets.check(batch) end
  check_optional(batch.backoff, 'the backoff', 0, constants.MAX_BACKOFF)
  check_optional(batch.timeout, 'the timeout', 0, MAX_DURATION)
  check_times(batch)
  if not CODEC_NUMBER[batch.codec or 'json'] then refuse('INVALID', 'unknown codec ' .. tostring(batch.codec)) end
  if batch.run and (type(batch.run) ~= 'string' or #batch.run > constants.MAX_RUN_OPTIONS) then
    refuse('INVALID', string.format('`run` must be text of up to %d bytes', constants.MAX_RUN_OPTIONS))
  end
  check_keep(batch.keep)
  if batch.fields then own_fields.check(batch.fields, 'fields') end
  check_unique(batch)
  check_limits(batch.limits or {})
  marks.of_batch(batch)
  if batch.share then check_name(batch.share, 'the key of a share', constants.MAX_KEY, '%w._:@/%-') end
end

-- Replace ids of this call by the ids of the existing jobs that own their unique keys.
local function resolve_ids(ids, existing)
  local names, seen = {}, {}
  for _, id in ipairs(ids) do
    local known_as = existing[id] or id
    if not seen[known_as] then names[#names + 1] = known_as end
    seen[known_as] = true
  end
  return names
end

-- An existing dependency; false if it was removed after it had ended, and its outcome is known.
local function require_dependency(id)
  if redis.call('EXISTS', key.job(id)) == 1 then return (require_job(id)) end
  if not outcomes.find(id) then
    refuse('NOTFOUND', 'dependency ' .. id .. ' does not exist: store it before, or in the same call; if it ended and was '
      .. 'removed since, leave it out')
  end
  return false
end

-- Check dependencies. `existing`: ids of this call -> ids of existing jobs. Returns existing dependencies by id (false: it was
-- removed, and its outcome is known), and a set of those in this call.
local function check_after(args, is_new, existing)
  local known, awaited, edges = {}, {}, 0
  for _, batch in ipairs(args.batches) do
    if batch.after then
      if not dependencies.LETTER_OF_POLICY[batch.on_failed or 'block'] then
        refuse('INVALID', "`on_failed` must be 'block', 'cancel' or 'run'")
      end
      batch.after = resolve_ids(check_distinct_ids(batch.after, 'after'), existing)
      edges = edges + #batch.after * #batch.ids
      if edges > MAX_DEPENDENCIES then
        refuse('INVALID', string.format('more than %d dependencies in one call', MAX_DEPENDENCIES))
      end
      for _, id in ipairs(batch.after) do
        if is_new[id] then
          awaited[id] = true
        elseif known[id] == nil then
          known[id] = require_dependency(id)
        end
      end
    end
  end
  return known, awaited
end

-- Refuse cycles. They can only be among jobs of this call, as no existing job depends on these.
local function check_cycles(args, awaited, existing)
  local waits, state = {}, {} -- 1 in progress, 2 done
  for _, batch in ipairs(args.batches) do
    for _, id in ipairs(batch.ids) do waits[existing[id] or id] = batch.after or {} end
  end
  for id in pairs(awaited) do
    local path, at = { id }, { 0 }
    while #path > 0 do
      local last = path[#path]
      state[last] = 1
      at[#at] = at[#at] + 1
      local next_id = waits[last][at[#at]]
      if not next_id then
        state[last] = 2
        path[#path], at[#at] = nil, nil
      elseif state[next_id] == 1 then
        refuse('CYCLE', 'job ' .. next_id .. ' would wait for itself')
      elseif awaited[next_id] and not state[next_id] then
        path[#path + 1], at[#at + 1] = next_id, 0
      end
    end
  end
end

local function check_payload(id, payload)
  if not payload then refuse('INVALID', 'job ' .. id .. ' has no payload') end
  if #payload > MAX_PAYLOAD then
    refuse('TOOBIG', string.format('the payload of job %s is %d bytes (limit %d); store it elsewhere and pass '
      .. 'a reference', id, #payload, MAX_PAYLOAD))
  end
end

-- A job with dependencies cannot replace one with dependents: they might wait for each other.
local function check_replaced(id, batch, is_there)
  if batch.after and (is_there or markers.resolving) and redis.call('EXISTS', key.dependents(id)) == 1 then
    refuse('BLOCKED', 'job ' .. id .. ' has dependents, so it cannot be replaced by a job with dependencies')
  end
end

-- The id of an existing job with this id or this unique key.
local function look_up(id, batch, args)
  local unique = batch.unique
  local owner = unique and owner_of(unique)
  local existing = (not args.fresh and redis.call('EXISTS', key.job(id)) == 1 and id) or owner
  if not existing then check_replaced(id, batch) end
  if not existing or args.on_exists == 'return' then return existing end
  if args.on_exists == 'error' then
    refuse('EXISTS', 'job ' .. existing .. (existing == id and '' or ' with the unique key ' .. unique) .. ' already exists')
  end
  if owner and owner ~= existing then
    refuse('EXISTS', 'job ' .. existing .. ' cannot be replaced: job ' .. owner .. ' owns the unique key ' .. unique)
  end
  local job, kept
  if redis.call('EXISTS', key.job(existing)) == 1 then job, kept = require_job(existing, 'u') end
  -- A key owned for a fixed time outlives its job, whose id may have been reused since.
  if job and existing ~= id and string.sub(kept or '', 2) ~= unique then
    refuse('EXISTS', 'job ' .. existing .. ' cannot be replaced: it does not own the unique key ' .. unique)
  end
  if job and job.state == 'running' then
    refuse('STATE', 'job ' .. existing .. ' is running and cannot be replaced: cancel it first')
  end
  check_replaced(existing, batch, job)
  return existing
end

-- Refuse two jobs with the same id, key or replaced job in one call.
local function check_duplicates(seen, id, existing, unique)
  if unique and seen[' ' .. unique] then
    refuse('INVALID', 'the unique key ' .. unique .. ' occurs twice in one call')
  end
  if seen[id] or seen[existing or id] then
    refuse('INVALID', 'job ' .. (seen[id] and id or existing) .. ' occurs twice in one call')
  end
  seen[id], seen[existing or id] = true, true
  if unique then seen[' ' .. unique] = true end
end

-- Compute once what the jobs of a batch have in common.
local function prepare_batch(batch)
  batch.spec = pack_spec(batch)
  batch.flags = (batch.keep == false and NOT_KEPT or 0) + (batch.at_most_once and AT_MOST_ONCE or 0) + (batch.after and AFTER or 0)
    + (batch.limits and LIMITED or 0) + (batch.unique and UNIQUE or 0)
  if type(batch.keep) == 'number' then batch.flags = batch.flags + EXPIRES end
  if batch.fields and next(batch.fields) then
    batch.own_fields, batch.fields_size = own_fields.check(batch.fields, 'fields')
    batch.flags = batch.flags + EXTRA
  end
  batch.marks = marks.of_batch(batch)
  if batch.marks then batch.flags = batch.flags + INDEXED end
  batch.is_plain = batch.flags == 0 and not (batch.run or batch.share or batch.deadline or batch.deadline_at)
end

-- A short call may store long fields with each of many jobs.
local function check_total_size(batches)
  local bytes = 0
  for _, batch in ipairs(batches) do bytes = bytes + (batch.fields_size or 0) * #batch.ids end
  if bytes > MAX_FIELDS_OF_CALL then
    refuse('TOOBIG', string.format('the fields of these jobs are %d bytes (limit %d): enqueue fewer jobs at once', bytes,
      MAX_FIELDS_OF_CALL))
  end
end

-- The ids that the stored jobs will have.
local function new_ids(args, existing)
  local is_new = {}
  for _, batch in ipairs(args.batches) do
    for _, id in ipairs(batch.ids) do
      if not existing[id] or args.on_exists == 'replace' then is_new[existing[id] or id] = true end
    end
  end
  return is_new
end

-- Check everything before anything is written. Returns existing ids, the number of jobs to store, existing
-- dependencies, and the jobs of this call that are dependencies.
local function check_enqueue(args, blobs)
  local batches, count, new, waits, existing, seen = args.batches, 0, 0, false, {}, nil
  local replaces = args.on_exists == 'replace'
  args.on_exists = args.on_exists or 'return'
  if not EXISTS[args.on_exists] then refuse('INVALID', "`on_exists` must be 'return', 'error' or 'replace'") end
  if #blobs > 3 then seen = {} end -- a single job cannot be a duplicate
  for at = 1, #batches do
    local batch = batches[at]
    if not args.is_cached then
      check_batch(batch)
      prepare_batch(batch)
    end
    -- A repeated call has to look its keys up again.
    if args.fresh and batch.unique then refuse('INVALID', 'a call with unique keys cannot be `fresh`') end
    waits = waits or batch.after
    for place = 1, #batch.ids do
      local id = batch.ids[place]
      count = count + 1
      if count > MAX_BATCH then refuse('INVALID', string.format('more than %d jobs in one call', MAX_BATCH)) end
      check_payload(check_id(id), blobs[count + 2])
      local found = look_up(id, batch, args)
      existing[id] = found
      if not found or replaces then new = new + 1 end
      if seen then check_duplicates(seen, id, found, batch.unique) end
    end
  end
  if not args.is_cached then
    check_total_size(batches)
    marks.check_total(batches)
  end
  local found = { existing = existing, new = new, replaces = replaces, awaited = {} }
  if waits then
    found.known, found.awaited = check_after(args, new_ids(args, existing), existing)
    check_cycles(args, found.awaited, existing)
  end
  return found
end

-- A previous job with this id ended, and some of its dependents are not resolved yet: they now wait for the new job,
-- including those that were resolved.
local function inherit_dependents(id, found)
  if not markers.resolving or redis.call('EXISTS', key.dependents(id)) == 0 then return end
  found.awaited[id] = true
  to_resolve[#to_resolve + 1] = { id, '-', '-inf' }
end

-- Delete a job that is replaced. Its dependents wait for the new one.
local function remove_existing(id, found)
  local job, waiters = load_job(id, 'w')
  if not job then return inherit_dependents(id, found) end
  if has(job.flags, UNIQUE) then release_key(job, 'qpk') end
  if job.state == 'blocked' then unlink(job) end
  drop_deadline(job)
  if has(job.flags, LIMITED) then
    limits.leave(job)
    flush() -- its slot may have started a job that is replaced next
  end
  if has(job.flags, INDEXED) then core.batches.on_replace(job) end
  if has(job.flags, INDEXED) and marks.read(job).tracked then
    found.tracked = found.tracked or {}
    found.tracked[id] = true
  end
  emit('deleted', job)
  delete_job(job, key.blob('p', id), key.blob('r', id))
  notify_waiters(job, waiters)
  if not has(job.flags, AWAITED) or redis.call('EXISTS', key.dependents(id)) == 0 then return end
  found.awaited[id] = true
  if FINAL[job.state] then to_resolve[#to_resolve + 1] = { id, '-', '-inf' } end
end

local plain_job = { id = '', queue = '', flags = 0 } -- the plain job that was stored last, as its event names it

local function store_job(batch, id, arrival, payload, found)
  local is_tracked = found.tracked and found.tracked[id] -- the job that it replaces
  if batch.is_plain and not (batch.due_time or batch.is_shared or found.awaited[id] or is_tracked or found.copy) then
    plain_job.id, plain_job.queue = id, batch.queue
    emit('enqueued', plain_job)
    return insert_waiting(id, batch.queue, batch.priority or 0, arrival, 'h', batch.head, 'p', store_blob('p', id, payload))
  end
  local flags = batch.flags + (found.awaited[id] and AWAITED or 0)
  local job = { id = id, queue = batch.queue, priority = batch.priority or 0, created = now, since = now, arrival = arrival, attempt = 0,
    lease = 0, retries_used = 0, crashes_used = 0, lost_used = 0, flags = flags, misses = 0, state = nil }
  local fields = { 'h', batch.head, 'p', store_blob('p', id, payload) }
  if found.copy then found.copy(job, fields) end
  if batch.unique then
    fields[#fields + 1], fields[#fields + 2] = 'u', acquire_key(batch.unique, batch.unique_for, id)
  end
  if batch.is_shared then
    job.flags = job.flags + FAIR
    job.arrival = fair_shares.next_start(batch.queue, job.priority, batch.share or '')
    if batch.share then fields[#fields + 1], fields[#fields + 2] = 'i', batch.share end
  end
  if batch.run then fields[#fields + 1], fields[#fields + 2] = 'x', batch.run end
  if batch.marks or is_tracked then
    job.flags = with(job.flags, INDEXED, true)
    fields[#fields + 1], fields[#fields + 2] = 't', marks.insert(batch, id, is_tracked)
  end
  if batch.limits then fields[#fields + 1], fields[#fields + 2] = 'l', table.concat(batch.limits, ' ') end
  if type(batch.keep) == 'number' then fields[#fields + 1], fields[#fields + 2] = 'k', string.format('%.0f', batch.keep) end
  if batch.own_fields then redis.call('HSET', key.fields(id), unpack(batch.own_fields)) end
  local deadline_at = deadlines.set(job, batch)
  if deadline_at then fields[#fields + 1], fields[#fields + 2] = 'd', deadline_at end
  local left = 0
  if batch.after then
    local field, is_doomed
    field, left, is_doomed = dependencies.add(batch, id, arrival, found.known)
    fields[#fields + 1], fields[#fields + 2] = 'b', field
    if is_doomed then collect(found, 'doomed', id) end
  end
  if left > 0 then
    dependencies.to_blocked(job, fields)
  elseif batch.due_time then
    to_scheduled(job, batch.due_time, fields)
  else
    to_waiting(job, fields)
  end
  emit('enqueued', job)
end

-- Store a job unless one exists. Returns its answer, and whether it was stored.
local function enqueue_one(batch, id, arrival, payload, found)
  local existing = found.existing[id]
  if existing and not found.replaces then return existing == id and 0 or '=' .. existing, false end
  if existing then remove_existing(existing, found) else inherit_dependents(id, found) end
  store_job(batch, existing or id, arrival, payload, found)
  return (existing or id) == id and 1 or '+' .. existing, true
end

-- Cancel jobs whose dependency has failed already.
local function cancel_doomed(ids)
  for _, id in ipairs(ids) do dependencies.cancel_doomed(load_job(id)) end
  flush()
end

-- Whether the jobs of a fresh call exist, checked with one command, which makes fresh ids fast.
local function is_repeated(args)
  local found, count = 0, 0
  for _, batch in ipairs(args.batches) do
    local jobs = {}
    for place, id in ipairs(batch.ids) do jobs[place] = key.job(id) end
    found, count = found + redis.call('EXISTS', unpack(jobs)), count + #jobs
  end
  if found > 0 and found < count then
    refuse('EXISTS', string.format('%d of these %d jobs already exist: their ids are not fresh', found, count))
  end
  return found > 0
end

-- `copy(job, fields)`, if given, completes the record of the only job of the call; see fork.lua.
local function enqueue(args, blobs, copy)
  local found, batches = check_enqueue(args, blobs), args.batches
  found.copy = copy
  local reply, touched, place, soon = { now }, {}, 0, now + MAX_IDLE_WAIT
  if args.fresh and is_repeated(args) then
    for at = 3, #blobs do reply[at - 1] = 1 end
    return reply
  end
  if found.new > 0 then core.batches.check(args, found) end
  local arrival = found.new > 0 and reserve_arrivals(found.new) or 0
  for at = 1, #batches do
    local batch = batches[at]
    local queue, ids, before = batch.queue, batch.ids, arrival
    batch.due_time, batch.is_shared = due_time(batch), batch.share or fair_shares.is_shared(queue)
    batch.head = pack_head(now, batch.spec)
    if batch.marks then marks.begin_batch(batch) end
    for number = 1, #ids do
      local stored
      place = place + 1
      reply[place + 1], stored = enqueue_one(batch, ids[number], arrival + 1, blobs[place + 2], found)
      if stored then
        arrival = arrival + 1
        if markers.outcomes and not args.fresh then collect(found, 'stored', found.existing[ids[number]] or ids[number]) end
      end
    end
    if arrival > before then
      touched[#touched + 1] = queue
      -- Wake for jobs that are due soon, too: an idle executor may be about to block for longer.
      touched[queue] = touched[queue] or not batch.due_time or batch.due_time < soon
    end
  end
  for at = 1, #touched do -- once all are stored, as replacing a job flushes
    if touched[touched[at]] then wake_later(touched[at]) end
  end
  flush()
  for at = 1, #touched do
    if not known_queues[touched[at]] then register_queue(touched[at]) end
  end
  if found.stored then outcomes.forget(found.stored) end
  if found.doomed then cancel_doomed(found.doomed) end
  return reply, found.new == 0
end

-- Give each batch its ids.
local IDS_FORMAT = 'expected all ids as one text, separated by spaces'
local function assign_ids(args, ids)
  if ids and args.is_cached and #args.batches == 1 and not args.batches[1].count then -- the id is checked later
    args.batches[1].ids[1] = ids
    return
  end
  local next_id = string.gmatch(type(ids) == 'string' and ids or '', '%S+')
  for _, batch in ipairs(check_list(args.batches, 'batches')) do
    batch.ids = {}
    for place = 1, check_integer(batch.count or 1, 'the count of a batch', 1, MAX_BATCH) do
      batch.ids[place] = next_id() or refuse('INVALID', 'fewer ids than jobs: ' .. IDS_FORMAT)
    end
  end
  if next_id() then refuse('INVALID', 'more ids than jobs: ' .. IDS_FORMAT) end
end

-- Whether the arguments can be cached: nothing in them is specific to this call, and they are few, as the last ids are
-- cached with them.
local function is_cacheable(args)
  if args.now or args.token or args.adder then return false end
  for _, batch in ipairs(args.batches) do
    if batch.unique or batch.after or batch.at or batch.deadline_at or batch.fields or #batch.ids > 10 then return false end
  end
  return true
end

register('enqueue', {}, function(args, blobs)
  assign_ids(args, blobs[2])
  local reply, is_unchanged = enqueue(args, blobs)
  publish_events()
  if not args.is_cached and is_cacheable(args) then cache_args(blobs[1], args) end
  return reply, is_unchanged
end, true)

-- Whether `enqueue` with these arguments would be refused now, for jobs that are enqueued in a transaction. Payloads may be empty.
register('check_enqueue', { 'no-writes' }, function(args, blobs)
  assign_ids(args, blobs[2])
  local found = check_enqueue(args, blobs)
  if found.new > 0 then core.batches.check(args, found) end
  return 'OK'
end, true)

core.check_batch, core.check_after, core.due_time, core.enqueue = check_batch, check_after, due_time, enqueue
core.require_dependency = require_dependency
