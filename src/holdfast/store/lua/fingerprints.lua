-- fingerprints: errors with the same cause share one record, with one traceback for all of them.
--
-- The worker computes the fingerprint of an exception. All other failures get one here, of their group, type, place and task.
-- The hash of a fingerprint has
--
--   type, place     of the error; without an error, the type is the group
--   task            of the job that had it first
--   revision        of the app, if it is known, when it was seen first
--   first, last     when it was seen
--   errors          how often
--   job, attempt    the example: whose traceback it is; at: when it was taken
--   description     of the example's error, as its executor sent it
--   traceback       of the example
--
-- Another example is taken after EXAMPLE_AGE: a burst of errors does not write a traceback for each, and the traceback is that
-- of the code that runs now. The hash expires when its queue would no longer keep a job that failed with the last example. Beyond
-- MAX_FINGERPRINTS, the one whose example is oldest is forgotten.

local decimal, setting, truncate = core.decimal, core.setting, core.truncate
local MAX_ERROR, MAX_FINGERPRINTS, MAX_PLACE = constants.MAX_ERROR, constants.MAX_FINGERPRINTS, constants.MAX_PLACE
local MAX_TRACEBACK = constants.MAX_TRACEBACK

local EXAMPLE_AGE, MIN_LIFE = 60000, 3600000

local fingerprints = {}

local function digest(text) return string.sub(redis.sha1hex(text), 1, 16) end

-- The fingerprint that an item of `finish` brings along, or that its group, type, place and task make.
function fingerprints.name(item, group, task)
  local given = item.fingerprint
  if not given or given == '' then
    return digest(table.concat({ group, item.type or '', item.place or '', task }, '\n'))
  end
  if #given <= constants.MAX_FINGERPRINT and string.find(given, '^[%w_.%-]+$') then return given end
  return digest(given)
end

local function forget_oldest()
  if redis.call('ZCARD', key.fingerprints()) <= MAX_FINGERPRINTS then return end
  redis.call('DEL', key.fingerprint(redis.call('ZPOPMIN', key.fingerprints())[1]))
end

-- Returns the fields of a new example, and for a new fingerprint also those that stay.
local function describe_example(job, item, group, description, traceback, is_new)
  local fields = { 'job', job.id, 'attempt', decimal[job.attempt], 'at', now, 'traceback', truncate(traceback or '', MAX_TRACEBACK),
    'description', description and #description <= MAX_ERROR and description or '' }
  if not is_new then return fields end
  for _, part in ipairs({ 'type', truncate(item.type or group, MAX_PLACE), 'place', truncate(item.place or '', MAX_PLACE),
    'task', job.task, 'revision', string.format('%.0f', item.revision or 0), 'first', now }) do
    fields[#fields + 1] = part
  end
  return fields
end

-- Count an error of the current attempt, or a failure without one. Returns its fingerprint.
function fingerprints.count(job, item, group, description, traceback)
  local name = fingerprints.name(item, group, job.task)
  local record = key.fingerprint(name)
  local known = redis.pcall('HMGET', record, 'at', 'errors')
  if known.err then redis.call('DEL', record) end
  local taken, seen = tonumber(known[1] or ''), tonumber(known[2] or '') or 0
  if taken and now >= taken and now - taken < EXAMPLE_AGE then
    redis.call('HSET', record, 'last', now, 'errors', decimal[seen + 1])
    return name
  end
  redis.call('HSET', record, 'last', now, 'errors', decimal[seen + 1],
    unpack(describe_example(job, item, group, description, traceback, not taken)))
  local life = math.max(setting('keep_failed', job.queue), MIN_LIFE) + EXAMPLE_AGE
  if taken then redis.call('PEXPIRE', record, life, 'GT') else redis.call('PEXPIRE', record, life) end
  redis.call('ZADD', key.fingerprints(), now, name)
  forget_oldest()
  return name
end

-- Fields of a record, in this order; missing ones are false.
function fingerprints.load(name, ...)
  local values = redis.pcall('HMGET', key.fingerprint(name), ...)
  return values.err and {} or values
end

core.fingerprints = fingerprints
