-- check_batches: batches are listed, know their open members, and end when they have none.

local FINAL, batches, check, marks = core.FINAL, core.batches, core.check, core.marks
local load_job, set_marker = core.load_job, core.set_marker
local find, removal, score = check.find, check.removal, check.score

local STATES = { open = true, closed = true, done = true }

local function check_marker()
  if not markers.batches then find('marker', 'batches', function() set_marker('batches', 1) end) end
end

-- A batch that is closed and has no open member ends; unless a later call is about to end it.
local function check_end(name, state)
  local is_ending = redis.call('SISMEMBER', key.batches_ending(), name) == 1
  if state ~= 'closed' or is_ending or check.exists(key.open_members(name)) then return end
  find('not_done', 'batch ' .. name, function() batches.complete(name) end)
end

local function time_of_removal(name)
  local values = redis.call('HMGET', key.batch_record(name), 'done', 'keep')
  return (tonumber(values[1]) or now) + (tonumber(values[2]) or 0)
end

local function check_done(name, state)
  if state ~= 'done' or score(key.batches_done(), name) then return end
  find('unlisted', 'batches_done ' .. name, function()
    redis.call('ZADD', key.batches_done(), time_of_removal(name), name)
  end)
end

-- The times at which a batch was created, closed and done tell its state. A batch without any of them is removed: nobody can add
-- to it or wait for it.
local function restore_batch(name, where)
  local values = redis.call('HMGET', where, 'created', 'closed', 'done', 'state', 'keep')
  local state = values[3] and 'done' or values[2] and 'closed' or values[1] and 'open'
  if not state then return batches.remove(name) end
  if not STATES[values[4]] then redis.call('HSET', where, 'state', state) end
  if not tonumber(values[1]) then redis.call('HSET', where, 'created', check.score(key.batches(), name) or now) end
  if not tonumber(values[5]) then redis.call('HSET', where, 'keep', constants.DEFAULT_BATCH_KEEP) end
end

local COUNTS = { 'succeeded', 'failed', 'cancelled' }

-- The members that ended and still have a record, less those that the readable counts account for.
local function missing_count(name, where)
  local ended = redis.call('ZCARD', key.batch(name)) - redis.call('SCARD', key.open_members(name))
  for _, count in ipairs(redis.call('HMGET', where, unpack(COUNTS))) do ended = ended - (tonumber(count or nil) or 0) end
  return math.max(0, ended)
end

-- A count that is no number would prevent the end of the batch.
local function check_counts(name, where, values)
  for place, outcome in ipairs(COUNTS) do
    local count = values[3 + place]
    if count and not string.find(count, '^%-?%d+$') then
      find('damaged_value', 'b:' .. name .. ' ' .. outcome, function()
        redis.call('HDEL', where, outcome)
        redis.call('HSET', where, outcome, missing_count(name, where))
      end)
    end
  end
end

check.kind('b', { type = 'hash', name = 'batches', whole = function(name, where)
  if not check.is_name(name) then return check.unknown(where) end
  local values = redis.call('HMGET', where, 'state', 'created', 'keep', unpack(COUNTS))
  local state = values[1]
  if not STATES[state] or not tonumber(values[2]) or not tonumber(values[3]) then
    return find('damaged_value', 'b:' .. name, function() restore_batch(name, where) end)
  end
  check_counts(name, where, values)
  check_marker()
  if not score(key.batches(), name) then
    find('unlisted', 'batch ' .. name, function() redis.call('ZADD', key.batches(), tonumber(values[2]) or now, name) end)
  end
  check_end(name, state)
  check_done(name, state)
end })

check.kind('batches', { type = 'zset', name = 'batches', single = true, whole = check_marker, entry = function(_, _, name)
  if not check.exists(key.batch_record(name)) then
    find('stray_entry', 'batches ' .. name, function() batches.remove(name) end)
  end
end })

check.kind('batches_done', { type = 'zset', name = 'batches', single = true, entry = function(_, where, name, time)
  local state = check.read(false, 'HGET', key.batch_record(name), 'state')
  if state == 'done' and not check.is_time(tonumber(time)) then
    return find('misplaced', 'batches_done ' .. name, function() redis.call('ZADD', where, time_of_removal(name), name) end)
  end
  if state == 'done' or not STATES[state] and check.exists(key.batch_record(name)) then return end -- a lost state is restored
  find('stray_entry', 'batches_done ' .. name, removal('ZREM', where, name))
end })

check.kind('batches_ending', { type = 'set', name = 'batches', single = true, whole = function()
  if not markers.ending then find('marker', 'ending', function() set_marker('ending', 1) end) end
end })

-- Members

local function is_orphan(name, where)
  if check.exists(key.batch_record(name)) then return false end
  find('orphan', core.short_key(where), check.deletion(where))
  return true
end

-- Whether a job names this batch; true if it cannot be read.
local function names_batch(id, name)
  local job, fault = load_job(id)
  if not job then return fault ~= 'NOTFOUND' end
  return marks.of(job).batch == name, job
end

-- The index of members that have a record.
check.kind('batch', { type = 'zset', name = 'batches', whole = function(name, where) return not is_orphan(name, where) end,
  entry = function(name, where, id, time)
    local is_member, job = names_batch(id, name)
    if not is_member then return find('stray_entry', 'batch:' .. name .. ' ' .. id, removal('ZREM', where, id)) end
    if not job then return end
    if tonumber(time) ~= job.created then
      find('misplaced', 'batch:' .. name .. ' ' .. id, function() redis.call('ZADD', where, job.created, id) end)
    end
    local open = key.open_members(name)
    if FINAL[job.state] or check.read(1, 'SISMEMBER', open, id) == 1 then return end
    find('not_open', name .. ' ' .. id, function() redis.call('SADD', open, id) end)
  end })

-- Open members. One that has ended leaves the set, and is counted.
check.kind('bo', { type = 'set', name = 'batches', whole = function(name, where) return not is_orphan(name, where) end,
  entry = function(name, where, id)
    local is_member, job = names_batch(id, name)
    if not is_member or job and FINAL[job.state] then
      return find('stray_entry', 'bo:' .. name .. ' ' .. id, function()
        if not job or is_member then batches.check_member(name, id) else redis.call('SREM', where, id) end
      end)
    end
    if job and not score(key.batch(name), id) then
      find('not_indexed', 'batch:' .. name .. ' ' .. id, function() redis.call('ZADD', key.batch(name), job.created, id) end)
    end
  end })
