-- batches: named groups of jobs, which are counted, waited for and cancelled together, and have jobs at their end.
--
-- A batch is `open` while jobs are added to it, then `closed`. Once it is closed and has no open member, it is `done` for good,
-- and its callbacks are enqueued, in the same call, which ends at most 20 batches: later calls end the others. A member is open
-- until it ends. A member that is retried is open again; if its batch is done, only the counts change.
--
-- The set of open members decides. The counters of ended members change only together with this set, by as many members as
-- have really left it, so a repeated end counts once, and the counts outlive the records of the members. The index
-- `batch:<name>` has the members that have a record, by the time of their enqueue.
--
-- Jobs can be added while the batch is open, and by an open member while it is closed: it cannot be done before that member
-- has ended. Nobody can add to a batch that is done or was cancelled. A batch is removed some time after it is done (`keep`).
--
--   open_batch(name, keep, callbacks), blobs: payloads of the callbacks    create a batch, or change an open one; 1 if it is new
--     keep        milliseconds (7 days)
--     callbacks   a list of objects: `on` (done; succeeded: if all members did; failed: if not), `id`, and `job`, a batch as in
--                 enqueue.lua without ids. A callback replaces an earlier one with the same `on`
--   close_batch(name)                     1 if it was open
--   cancel_batch(name, reason, cursor, limit, token)    close the batch, and cancel some of its open members. Returns the next
--                                         cursor ('0': all were visited), and a list of answer, count, answer, count ...
--   delete_batch(name)                    delete a batch that is done; its members stay
--
-- Errors: NOBATCH, INVALID, TOOBIG, STATE.

local FINAL, INDEXED, action, check_batch = core.FINAL, core.INDEXED, core.action, core.check_batch
local check_id, check_integer, check_list = core.check_id, core.check_integer, core.check_list
local check_reason, collect, emit_about = core.check_reason, core.collect, core.emit_about
local enqueue, flush, has, is_refusal = core.enqueue, core.flush, core.has, core.is_refusal
local load_job = core.load_job
local loop_despite_errors, marks, publish_events = core.loop_despite_errors, core.marks, core.publish_events
local refuse, register, send_message, set_marker = core.refuse, core.register, core.send_message, core.set_marker
local sorts_before = core.sorts_before
local BATCH_OPTIONS = core.BATCH_OPTIONS
local MAX_BATCH, MAX_BATCHES, MAX_BATCH_MEMBERS = constants.MAX_BATCH, constants.MAX_BATCHES, constants.MAX_BATCH_MEMBERS
local DEFAULT_PAGE, MAX_DURATION, MAX_PAYLOAD = constants.DEFAULT_PAGE, constants.MAX_DURATION, constants.MAX_PAYLOAD
local MIN_KEEP, DEFAULT_BATCH_KEEP = constants.MIN_KEEP, constants.DEFAULT_BATCH_KEEP

local COUNTS = { 'succeeded', 'failed', 'cancelled' }
local MAX_EXPIRED, SAMPLE = 20, 5 -- batches removed per call; members checked
local PART = 1000 -- members in one command

local batches = {}

local function refuse_missing(name) refuse('NOBATCH', 'batch ' .. name .. ' does not exist: open it first') end

local function require_state(name)
  return redis.call('HGET', key.batch_record(marks.check_batch(name)), 'state') or refuse_missing(name)
end

-- Members

-- The batch that a job belongs to, if any.
local function batch_of(job) return has(job.flags, INDEXED) and marks.read(job).batch or nil end

-- Collect changes of members; `settle` writes them. Kinds: `added`, an outcome, or `left`: it is not open any more.
local function change_later(kind, name, id) collect(member_changes, kind .. ' ' .. name, id) end

-- A job of a batch is stored.
function batches.on_enqueue(name, id) change_later('added', name, id) end

-- A job with the flag INDEXED ends.
function batches.on_end(job, state)
  local name = batch_of(job)
  if name then change_later(state, name, job.id) end
end

-- An ended job with the flag INDEXED is about to be retried. It may have been a member of an earlier batch of this name.
function batches.on_retry(job)
  local name = batch_of(job)
  if not name or not redis.call('ZSCORE', key.batch(name), job.id) then return end
  if redis.call('SADD', key.open_members(name), job.id) == 1 then
    redis.call('HINCRBY', key.batch_record(name), job.state, -1)
  end
end

-- A job with the flag INDEXED is about to be replaced by another: it does not count any more. Its successor may be added by
-- the same call, so it leaves at once.
function batches.on_replace(job)
  local name = batch_of(job)
  if not name or not redis.call('ZSCORE', key.batch(name), job.id) then return end
  if FINAL[job.state] then
    redis.call('HINCRBY', key.batch_record(name), job.state, -1)
  else
    redis.call('SREM', key.open_members(name), job.id)
    change_later('left', name, job.id)
  end
end

-- Apply a command to members in parts. Returns the sum of the replies.
local function apply(command, name, ids)
  local sum = 0
  for first = 1, #ids, PART do
    sum = sum + redis.call(command, key.open_members(name), unpack(ids, first, math.min(first + PART - 1, #ids)))
  end
  return sum
end

-- Write the changes of one kind to a batch. Returns whether members may have left it.
local function write_change(kind, name, ids)
  if kind == 'left' then return true end
  if kind == 'added' then
    apply('SADD', name, ids)
    return false
  end
  local count = apply('SREM', name, ids)
  if count > 0 then redis.call('HINCRBY', key.batch_record(name), kind, count) end
  return count > 0
end

-- Leave a batch that became empty to later calls: see `continue_completing`.
local function complete_later(name)
  redis.call('SADD', key.batches_ending(), name)
  if not markers.ending then set_marker('ending', 1) end
end

-- Write the collected changes, and complete batches that became empty. A batch that is damaged does not affect the others.
-- A callback that is enqueued flushes again, so the list is replaced first.
function batches.settle()
  local changes, touched, place, at = member_changes, {}, 0, 0
  member_changes = {}
  loop_despite_errors(function()
    while place < #changes do
      place = place + 1
      local kind, name = string.match(changes[place], '^(%S+) (.+)$')
      if write_change(kind, name, changes[changes[place]]) then touched[#touched + 1] = name end
    end
  end)
  loop_despite_errors(function()
    while at < #touched do
      at = at + 1
      if budget.completed > 0 then batches.complete(touched[at]) else complete_later(touched[at]) end
    end
  end, function() complete_later(touched[at]) end)
end

-- Completion

local function numbers(values, first)
  local list = {}
  for place = first, first + #COUNTS - 1 do list[#list + 1] = tonumber(values[place] or 0) end
  return list
end

-- Enqueue a callback, whose id makes it safe to do so again. A refusal must not stop the call that ended the last member, and
-- would be repeated. After any other error the batch stays closed, and a later call ends it.
local function enqueue_callback(name, on)
  local values = redis.call('HMGET', key.batch_record(name), 'job:' .. on, 'id:' .. on, 'payload:' .. on)
  if not values[1] then return end
  local job = cjson.decode(values[1])
  job.ids, job.ends = { values[2] }, name
  local done, fault = pcall(enqueue, { batches = { job }, on_exists = 'return' }, { '', values[2], values[3] })
  if done then return end
  if not is_refusal(fault) then error(fault, 0) end
  redis.log(redis.LOG_WARNING, 'holdfast: callback ' .. values[2] .. ' of batch ' .. name .. ' was refused: ' .. fault.refusal)
end

-- End a batch that is closed and has no open member: once, as it is not closed afterwards.
function batches.complete(name)
  if redis.call('EXISTS', key.open_members(name)) == 1 then return end
  local record = key.batch_record(name)
  local values = redis.call('HMGET', record, 'state', 'keep', 'succeeded', 'failed', 'cancelled', 'waiters')
  if values[1] ~= 'closed' then return end
  budget.completed = budget.completed - 1
  local counts = numbers(values, 3)
  enqueue_callback(name, 'done')
  enqueue_callback(name, counts[2] + counts[3] == 0 and 'succeeded' or 'failed')
  redis.call('HSET', record, 'state', 'done', 'done', now)
  redis.call('ZADD', key.batches_done(), now + tonumber(values[2]), name)
  for inbox in string.gmatch(values[6] or '', '%S+') do send_message(inbox, '=' .. name) end
  redis.call('HDEL', record, 'waiters')
  emit_about('batch_done', name)
end

-- Complete batches that earlier calls left. One for which an error occurs again is left to `repair_some`, as it would fail in
-- every call.
function batches.continue_completing()
  local names, at = redis.call('SRANDMEMBER', key.batches_ending(), math.max(1, budget.completed)), 0
  loop_despite_errors(function()
    while at < #names do
      at = at + 1
      redis.call('SREM', key.batches_ending(), names[at])
      batches.complete(names[at])
    end
  end)
  flush()
  if redis.call('EXISTS', key.batches_ending()) == 0 then set_marker('ending', nil) end
end

-- Adding members

-- Whether this call may add members to a batch, and how many it will.
local function check_room(name, count, adder)
  local values = redis.call('HMGET', key.batch_record(name), 'state', 'cancelling', 'succeeded', 'failed', 'cancelled')
  local state, open = values[1] or refuse_missing(name), key.open_members(name)
  if state == 'done' then refuse('STATE', 'batch ' .. name .. ' is done: use another name, or delete it first') end
  if values[2] then refuse('STATE', 'batch ' .. name .. ' was cancelled') end
  if state == 'closed' and not (type(adder) == 'string' and redis.call('SISMEMBER', open, adder) == 1) then
    refuse('STATE', 'batch ' .. name .. ' is closed: only its own jobs can add to it, while they run')
  end
  local total = count + redis.call('SCARD', open)
  for _, number in ipairs(numbers(values, 3)) do total = total + number end
  if total > MAX_BATCH_MEMBERS then
    refuse('TOOBIG', string.format('batch %s would have %d jobs (limit %d): use several batches', name, total, MAX_BATCH_MEMBERS))
  end
end

-- Check the batches that jobs of an enqueue belong to. `found`: see enqueue.lua. Nothing was written yet.
function batches.check(args, found)
  local counts, names = {}, {}
  for _, group in ipairs(args.batches) do
    local name = group.batch
    for place = 1, name and #group.ids or 0 do
      if found.replaces or not found.existing[group.ids[place]] then
        if not counts[name] then names[#names + 1] = name end
        counts[name] = (counts[name] or 0) + 1
      end
    end
  end
  for _, name in ipairs(names) do check_room(name, counts[name], args.adder) end
end

-- Opening, closing, deleting

local function remove(name)
  redis.call('UNLINK', key.batch_record(name), key.open_members(name), key.batch(name))
  redis.call('ZREM', key.batches_done(), name)
  redis.call('ZREM', key.batches(), name)
  redis.call('SREM', key.batches_ending(), name)
  if redis.call('EXISTS', key.batches()) == 0 then set_marker('batches', nil) end
end

-- Make room for a new batch: the one that has been done for longest goes.
local function check_number()
  if redis.call('ZCARD', key.batches()) < MAX_BATCHES then return end
  local oldest = redis.call('ZRANGE', key.batches_done(), 0, 0)[1]
  if not oldest then refuse('INVALID', string.format('there are already %d batches that are not done (the limit)', MAX_BATCHES)) end
  return oldest
end

local function check_callback(callback, payload)
  if type(callback) ~= 'table' or type(callback.job) ~= 'table' then refuse('INVALID', 'a callback must be an object with a `job`') end
  if callback.on ~= 'done' and callback.on ~= 'succeeded' and callback.on ~= 'failed' then
    refuse('INVALID', "`on` must be 'done', 'succeeded' or 'failed'")
  end
  for field in pairs(callback.job) do
    if not BATCH_OPTIONS[field] and field ~= 'delay' then
      refuse('INVALID', '`' .. tostring(field) .. '` does not apply to the callback of a batch')
    end
  end
  callback.job.ids = { check_id(callback.id) }
  check_batch(callback.job)
  callback.job.ids = nil
  if not payload then refuse('INVALID', 'callback ' .. callback.id .. ' has no payload') end
  if #payload > MAX_PAYLOAD then
    refuse('TOOBIG', string.format('the payload of callback %s is %d bytes (limit %d)', callback.id, #payload, MAX_PAYLOAD))
  end
end

register('open_batch', {}, function(args, blobs)
  local name, callbacks = marks.check_batch(args.name), check_list(args.callbacks or {}, 'callbacks', 0)
  if args.keep then check_integer(args.keep, '`keep`', MIN_KEEP, MAX_DURATION) end
  for place, callback in ipairs(callbacks) do check_callback(callback, blobs[place + 1]) end
  local record = key.batch_record(name)
  local state = redis.call('HGET', record, 'state')
  local is_over = state == 'done' and tonumber(redis.call('ZSCORE', key.batches_done(), name) or 0) <= now
  if is_over then -- it is removed soon, if anybody is there to do it
    remove(name)
    state = false
  end
  if state and state ~= 'open' then
    refuse('STATE', 'batch ' .. name .. ' is ' .. state .. ': use another name' .. (state == 'done' and ', or delete it first' or ''))
  end
  if not state then
    local surplus = check_number()
    if surplus then remove(surplus) end
    redis.call('HSET', record, 'state', 'open', 'created', now, 'keep', DEFAULT_BATCH_KEEP)
    redis.call('ZADD', key.batches(), now, name)
    if not markers.batches then set_marker('batches', 1) end
  end
  if args.keep then redis.call('HSET', record, 'keep', args.keep) end
  for place, callback in ipairs(callbacks) do
    redis.call('HSET', record, 'job:' .. callback.on, cjson.encode(callback.job), 'id:' .. callback.on, callback.id,
      'payload:' .. callback.on, blobs[place + 1])
  end
  return state and 0 or 1
end)

local function close(name, state)
  if state ~= 'open' then return 0 end
  redis.call('HSET', key.batch_record(name), 'state', 'closed', 'closed', now)
  return 1
end

register('close_batch', { 'allow-oom' }, function(args)
  local changed = close(args.name, require_state(args.name))
  batches.complete(args.name)
  publish_events()
  return changed, changed == 0
end)

-- Some open members, and the next cursor. SSCAN visits all that stay in the set meanwhile; a small set is visited at once.
local function scan_members(args)
  local limit, cursor = check_integer(args.limit or DEFAULT_PAGE, 'the limit', 1, MAX_BATCH), tostring(args.cursor or '0')
  if not string.find(cursor, '^%d+$') or #cursor > 18 then refuse('INVALID', 'expected the cursor of an earlier call') end
  local found = redis.call('SSCAN', key.open_members(args.name), cursor, 'COUNT', limit)
  table.sort(found[2], sorts_before)
  return found[2], found[1]
end

-- Have an open member leave that has ended without being counted, or has no record.
local function check_member(name, id)
  local job, fault = load_job(id)
  if job and FINAL[job.state] then
    change_later(job.state, name, id)
  elseif fault == 'NOTFOUND' then
    change_later('cancelled', name, id)
  end
end

-- Cancel members. Returns a list of answer, count, answer, count ...
local function cancel_members(name, ids, reason)
  local counts, list, at = {}, {}, 0
  local function count(answer) counts[answer] = (counts[answer] or 0) + 1 end
  loop_despite_errors(function()
    while at < #ids do
      at = at + 1
      local answer = action.cancel(ids[at], { reason = reason })
      count(answer)
      if answer == 'STATE' or answer == 'NOTFOUND' then check_member(name, ids[at]) end
      flush()
    end
  end, function() count('DAMAGED') end)
  for answer, number in pairs(counts) do list[#list + 1], list[#list + 2] = answer, number end
  return list
end

register('cancel_batch', { 'allow-oom' }, function(args)
  local state = require_state(args.name)
  check_reason(args)
  local ids, cursor = scan_members(args)
  close(args.name, state)
  if state ~= 'done' then redis.call('HSETNX', key.batch_record(args.name), 'cancelling', now) end
  local answers = cancel_members(args.name, ids, args.reason)
  batches.complete(args.name)
  publish_events()
  return { cursor, answers }
end)

register('delete_batch', { 'allow-oom' }, function(args)
  local state = require_state(args.name)
  if state ~= 'done' then refuse('STATE', 'batch ' .. args.name .. ' is ' .. state .. ': only one that is done can be deleted') end
  remove(args.name)
  return 1
end)

-- Upkeep

-- Remove batches whose time is over.
function batches.remove_expired()
  local due = redis.call('ZRANGEBYSCORE', key.batches_done(), '-inf', now, 'LIMIT', 0, MAX_EXPIRED)
  for _, name in ipairs(due) do remove(name) end
end

-- Check some open members of a random batch: one that has ended, or has no record, leaves the set; and then the batch may be
-- done.
function batches.repair_some()
  local name = redis.call('ZRANDMEMBER', key.batches())
  if not name then return end
  for _, id in ipairs(redis.call('SRANDMEMBER', key.open_members(name), SAMPLE)) do check_member(name, id) end
  for _, id in ipairs(redis.call('ZRANDMEMBER', key.batch(name), SAMPLE)) do
    if redis.call('EXISTS', key.job(id)) == 0 then redis.call('ZREM', key.batch(name), id) end
  end
  flush()
  batches.complete(name)
end

-- Once a second, if there are batches.
function batches.maintain()
  if not markers.batches then return end
  batches.remove_expired()
  batches.repair_some()
end

batches.remove, batches.check_member = remove, check_member
core.batches, core.require_batch = batches, require_state
