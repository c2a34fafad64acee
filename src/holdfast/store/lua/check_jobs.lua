-- check_jobs: compare the record of a job with the keys that must agree with it.

local CANCELLING, DEADLINE, EXPIRES, EXTRA = core.CANCELLING, core.DEADLINE, core.EXPIRES, core.EXTRA
local FAIR, FINAL, INDEXED, INLINE, LIMITED = core.FAIR, core.FINAL, core.INDEXED, core.INLINE, core.LIMITED
local NO_EXECUTOR, PRIORITY_STEP, UNIQUE = core.NO_EXECUTOR, core.PRIORITY_STEP, core.UNIQUE
local attempt_field, check, expiry, failures = core.attempt_field, core.check, core.expiry, core.failures
local has, limits, load_job, mark_extra = core.has, core.limits, core.load_job, core.mark_extra
local marks, pack_attempt, pack_hold, pack_status = core.marks, core.pack_attempt, core.pack_hold, core.pack_status
local parse_hold, read_job, set_since, to_waiting = core.parse_hold, core.read_job, core.set_since, core.to_waiting
local unpack_attempt, with = core.unpack_attempt, core.with
local find, repair_job, score = check.find, check.repair_job, check.score

local NAMES = { 's', 'h', 'b', 'c', 'd', 'f', 'g', 'k', 'l', 'p', 'r', 't', 'u', 'v', 'y', 'z' }
local FLAGGED = { 'u', 'k', 't', 'l' }
local FLAG_OF = { u = UNIQUE, k = EXPIRES, t = INDEXED, l = LIMITED }
local OF_STATE = { r = 'succeeded', g = 'failed', v = 'failed', y = 'failed' }
local IN_ORDER = { 'r', 'g', 'v', 'y' } -- of the fields above

-- Load a job and its fields. Returns nil if it is gone or cannot be read, which is reported.
local function load(id)
  local values, fields = redis.pcall('HMGET', key.job(id), unpack(NAMES)), {}
  local job, fault
  if values[1] and values[2] then job, fault = read_job(id, values[1], values[2]) else job, fault = load_job(id) end
  if fault == 'DAMAGED' then find('record_damaged', id) elseif fault == 'NEWER' then find('record_newer', id) end
  if not job then return nil end
  for place, name in ipairs(NAMES) do fields[name] = values[place] end
  return job, fields
end

local function write_status(job) redis.call('HSET', key.job(job.id), 's', pack_status(job)) end

-- Marks that are lost in the record, and not under their own key: before their flag and their indexes follow the record.
local function check_lost_marks(job, fields)
  local id = job.id
  if fields.t or not has(job.flags, INDEXED) or not check.exists(key.blob('m', id)) then return end
  find('stray_value', 'm:' .. id, function() redis.call('HSET', key.job(id), 't', '>') end)
end

-- Flags that say which fields a record has.
local function check_flags(job, fields)
  local flags = job.flags
  for _, name in ipairs(FLAGGED) do flags = with(flags, FLAG_OF[name], fields[name] and true or false) end
  if FINAL[job.state] or not fields.d then flags = with(flags, DEADLINE, false) end
  if flags == job.flags then return end
  find('flags', job.id, function()
    job.flags = flags
    write_status(job)
  end)
end

local function check_fields(job, fields)
  for _, name in ipairs(IN_ORDER) do
    if fields[name] and job.state ~= OF_STATE[name] then
      find('stray_field', job.id .. ' ' .. name, function() redis.call('HDEL', key.job(job.id), name) end)
    end
  end
end

-- Where a job must be in the index of its state.
local function right_place(job, found)
  if job.state == 'waiting' or job.state == 'throttled' then return job.priority * PRIORITY_STEP + job.arrival end
  if job.state == 'scheduled' then
    local due = score(key.timers, job.id)
    return check.is_time(due) and due or found
  end
  if has(job.flags, EXPIRES) and found == job.since - expiry.SET_ASIDE then return found end
  return job.since
end

local function check_place(job)
  local index = key.index[job.queue][job.state]
  local found = score(index, job.id)
  if not found then
    find('not_indexed', job.id, repair_job(job.id))
  elseif found ~= right_place(job, found) then
    find('misplaced', job.id, function() redis.call('ZADD', index, right_place(job, found), job.id) end)
  end
end

-- Create `meta` again, or continue after an arrival number. Without any number, the time in milliseconds is taken, which is higher
-- than all that were assigned; or else, if more than one a millisecond were assigned since `meta` was lost before, the records
-- show it (`arrivals_behind`). `since` has workers declare again what they declare when they start.
function check.restore_meta(arrival)
  local arrivals = math.max(arrival, meta.arrivals, meta.new and now or 0)
  redis.call('HSET', key.meta, 'schema', core.SCHEMA, 'arrivals', string.format('%.0f', arrivals))
  if meta.new then set_since(now) end
  meta.arrivals, meta.new = arrivals, false
end

local function check_arrival(job)
  if has(job.flags, FAIR) or job.arrival <= meta.arrivals then return end -- with shares, it is a virtual time
  if job.arrival >= PRIORITY_STEP then return end -- of a damaged record: after it, all priorities would be mixed
  find('arrivals_behind', job.id, function() check.restore_meta(math.max(job.arrival, now)) end)
end

local function check_hold(job, run)
  if run.executor == NO_EXECUTOR then return end
  local held, wanted = key.held(run.executor), has(job.flags, CANCELLING)
  local attempt, cancelling, spared, length = parse_hold(check.read(false, 'HGET', held, job.id) or '')
  if attempt == job.attempt and cancelling == wanted and length == job.lease then return end
  find('no_hold', job.id, function() redis.call('HSET', held, job.id, pack_hold(job.attempt, wanted, spared, job.lease)) end)
end

-- The current attempt of a running job; nil if it is lost or cannot be read.
function check.read_attempt(job)
  local run = unpack_attempt(redis.call('HGET', key.job(job.id), attempt_field[job.attempt]))
  return run and string.find(run.executor, '^[%w_.?%-]+/%w+%.%d+$') and run or nil
end

function check.restore_attempt(job, executor)
  redis.call('HSET', key.job(job.id), attempt_field[job.attempt], pack_attempt(job.since, 0, 0, 0, 0, '-', executor))
end

local function check_running(job, fields)
  if not score(key.timers, job.id) then find('no_timer', job.id, repair_job(job.id)) end
  if fields.l then check.slots(job, fields.l) end
  local run = check.read_attempt(job)
  if run then return check_hold(job, run) end
  find('attempt_lost', job.id, function() check.restore_attempt(job, NO_EXECUTOR) end)
end

local function check_throttled(job, fields)
  if fields.z and limits.is_in(fields.l, fields.z) then
    if not limits.is_parked(job) then find('not_parked', job.id, repair_job(job.id)) end
    return
  end
  find('not_parked', job.id, function()
    limits.remove_parked(job)
    to_waiting(job)
  end)
end

local function check_failed(job, fields)
  if not (fields.g and fields.v and fields.y) then
    return find('failure_unnamed', job.id, function()
      if not fields.y then redis.call('HSET', key.job(job.id), 'y', 'E') end
      failures.restore(job)
    end)
  end
  if failures.is_listed(job, fields.g, fields.v) then return end
  find('failure_unlisted', job.id, repair_job(job.id))
end

local function check_deadline(job, fields)
  if not has(job.flags, DEADLINE) or FINAL[job.state] or job.state == 'running' or job.attempt > 0 then return end
  if score(key.timers, '!' .. job.id) then return end
  find('no_timer', '!' .. job.id, function() redis.call('ZADD', key.timers, tonumber(fields.d) or now, '!' .. job.id) end)
end

local LOST = { p = 'payload_lost', r = 'result_lost' }

local function check_value(job, letter, field, value)
  if value ~= '>' or check.exists(key.blob(letter, job.id)) then return end
  if LOST[letter] then return find(LOST[letter], job.id) end
  find('value_lost', letter .. ':' .. job.id, function()
    redis.call('HDEL', key.job(job.id), field)
    if letter ~= 'm' then return end
    job.flags = with(job.flags, INDEXED, false)
    write_status(job)
  end)
end

local VALUES = { 'p', 'r', 'c', 'f' }

local function check_values(job, fields)
  if not fields.p and not check.exists(key.blob('p', job.id)) then find('payload_lost', job.id) end
  if job.state == 'succeeded' and not fields.r and not check.exists(key.blob('r', job.id)) then find('result_lost', job.id) end
  for _, letter in ipairs(VALUES) do check_value(job, letter, letter, fields[letter]) end
  check_value(job, 'm', 't', fields.t)
end

-- Keys that nobody would delete with the job.
local function check_extra(job)
  if has(job.flags, EXTRA) then return end
  local id = job.id
  if not check.exists(key.errors(id), key.notes(id), key.fields(id), key.steps(id), key.log(id), key.blob('c', id), key.blob('f', id)) then
    return
  end
  find('unflagged_keys', id, function() mark_extra(job) end)
end

-- `is_indexed` has the sizes of indexes set at the end of the call, which is left to the check of these.
local function check_marks(job, fields)
  if not fields.t then return end
  check.spend(1)
  local before = changed_counts
  changed_counts = nil
  local is_indexed = marks.is_indexed(job)
  changed_counts = before
  if not is_indexed then find('marks_unlisted', job.id, repair_job(job.id)) end
end

local function check_state(job, fields)
  if job.state == 'running' then return check_running(job, fields) end
  if job.state == 'throttled' then return check_throttled(job, fields) end
  if job.state == 'failed' then return check_failed(job, fields) end
  if job.state == 'scheduled' and not score(key.timers, job.id) then find('no_timer', job.id, repair_job(job.id)) end
end

-- A repair may have moved the job, so its state is read again before each part that depends on it.
local PARTS = { check_lost_marks, check_flags, check_fields, check_arrival, check_place, check_state, check_deadline, check_values, check_extra,
  check_marks, function(job, fields) if fields.u then check.unique_key(job, fields.u) end end,
  function(job, fields) if check.dependencies then check.dependencies(job, fields) end end,
  function(job, fields)
    if FINAL[job.state] and fields.k and not score(key.expiring(), job.id) then
      find('not_expiring', job.id, repair_job(job.id))
    end
  end }

local function check_record(id, name)
  if not check.is_id(id) then return check.unknown(name) end
  check.spend(2)
  local step = check.step()
  local job, fields = load(id)
  for _, part in ipairs(PARTS) do
    if step.has_repaired then job, fields = load(id) end
    if not job then return end
    part(job, fields)
  end
end

check.kind('j', { type = 'hash', name = 'jobs', each = true, whole = check_record })

-- Whether the field of the record that named a long value is lost: nothing else is left of the value.
local function is_last_copy(letter, job, field, name)
  return not field and (letter ~= 'r' or job.state == 'succeeded') and redis.call('STRLEN', name) > INLINE
end

-- Long values: of a job that exists, and whose record names them.
local function new_value_check(letter, field)
  return function(id, name)
    local job, value = load_job(id, field)
    if not job and value == 'NOTFOUND' then return find('orphan', letter .. ':' .. id, check.deletion(name)) end
    if not job or value == '>' then return end
    find('stray_value', letter .. ':' .. id, function()
      if not is_last_copy(letter, job, value, name) then return redis.call('UNLINK', name) end
      redis.call('HSET', key.job(id), field, '>')
      if letter ~= 'm' then return end
      job.flags = with(job.flags, INDEXED, true)
      write_status(job)
    end)
  end
end

local function value_kind(letter, field, name)
  check.kind(letter, { type = 'string', name = name, each = true, whole = new_value_check(letter, field) })
end

value_kind('p', 'p', 'payloads')
value_kind('r', 'r', 'results')
value_kind('c', 'c', 'checkpoints')
value_kind('f', 'f', 'progress')
value_kind('m', 't', 'tags and scopes')

-- Other keys of a job. Those of a job that exists are flagged, which is checked at its record.
local function check_owner(id, name)
  if check.is_gone(id) then find('orphan', core.short_key(name), check.deletion(name)) end
end

local function owned_kind(letter, kind_of, name)
  check.kind(letter, { type = kind_of, name = name, each = true, whole = check_owner })
end

owned_kind('e', 'list', 'errors')
owned_kind('n', 'list', 'notes')
owned_kind('u', 'hash', 'fields')
owned_kind('o', 'hash', 'steps')
owned_kind('g', 'hash', 'logs')
