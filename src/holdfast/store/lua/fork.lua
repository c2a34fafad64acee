-- fork: store a new job with the call of another one, which starts from the checkpoint and the kept steps of that job.
--
--   args.id          the job to fork, in any state; it only gets an entry in its history
--   args.new         id of the new job
--   args.from_start  true: the new job starts from the beginning, without checkpoint, steps and progress
--   args.set         options of the new job, as of a batch in enqueue.lua, in place of those of the job; `fields` are added to
--                    those that it has. Not: count, task, codec, unique, unique_for
--   args.run         the run options that the caller has changed: the call is refused if the job has others by now
--   args.adder       see enqueue.lua
--   args.token       see call.lua
--
-- Errors: INVALID; NOTFOUND, NEWER, DAMAGED if the job cannot be read, or what it saved is lost; STATE if it has saved nothing
-- to start from; EXISTS if the new id is that of a job that is no fork of this one; and those of enqueue.lua.
--
-- Returns 1 if the job was stored, 0 if this fork exists already; and the new job, as `get` describes it with `brief`.
--
-- The new job has the queue, priority and options of the job, its limits, tags, scope, share and fields. It does not have what
-- stands for the one job: its unique key, batch, dependencies, due time, deadline, counters, history, and whether it is
-- tracked. Long values are copied inside of the server.

local AT_MOST_ONCE, EXTRA, NOT_KEPT, add_note = core.AT_MOST_ONCE, core.EXTRA, core.NOT_KEPT, core.add_note
local check_id, describe, emit, enqueue = core.check_id, core.describe, core.emit, core.enqueue
local flush, has, load_job, marks = core.flush, core.has, core.load_job, core.marks
local publish_events, refuse, register, require_job = core.publish_events, core.refuse, core.register, core.require_job

local OPTIONS = {
  'queue', 'priority', 'delay', 'at', 'retries', 'crashes', 'lost', 'backoff', 'timeout', 'timeouts', 'stalls',
  'out_of_memory', 'run', 'keep', 'fields', 'at_most_once',
  'deadline', 'deadline_at', 'share', 'tags', 'scope', 'batch', 'limits', 'after', 'on_failed',
}
local WHAT = { p = 'payload', c = 'checkpoint' }

local function check_options(set)
  if type(set) ~= 'table' then refuse('INVALID', '`set` must be an object') end
  local is_known = {}
  for _, name in ipairs(OPTIONS) do is_known[name] = true end
  for name in pairs(set) do
    if not is_known[name] then refuse('INVALID', 'a fork cannot have the option ' .. string.sub(tostring(name), 1, 40)) end
  end
  if set.fields ~= nil and type(set.fields) ~= 'table' then refuse('INVALID', '`fields` must be a table of names and texts') end
end

local function read_record(id)
  local list, record = redis.call('HGETALL', key.job(id)), {}
  for place = 1, #list, 2 do record[list[place]] = list[place + 1] end
  return record
end

-- Refuse if a value of the job is lost. Every job has a payload.
local function check_blob(id, record, letter)
  local value = record[letter] or letter == 'c' and ''
  if value and (value ~= '>' or redis.call('TYPE', key.blob(letter, id)).ok == 'string') then return end
  local hint = letter == 'c' and 'fork the job from the start' or 'enqueue its call again'
  refuse('DAMAGED', string.format('the %s of job %s is missing from the store: %s', WHAT[letter], id, hint))
end

-- Refuse if there is nothing to start from. Returns whether the job has steps.
local function check_saved(id, record)
  check_blob(id, record, 'c')
  local kind = redis.call('TYPE', key.steps(id)).ok
  if kind ~= 'hash' and kind ~= 'none' then
    refuse('DAMAGED', 'the kept steps of job ' .. id .. ' are damaged: fork the job from the start')
  end
  if kind == 'none' and (record.c or '') == '' then
    refuse('STATE', 'job ' .. id .. ' has saved neither a checkpoint nor steps, so it can only be forked from the start')
  end
end

local function own_fields_of(job)
  local list, fields = has(job.flags, EXTRA) and redis.call('HGETALL', key.fields(job.id)) or {}, {}
  for place = 1, #list, 2 do fields[list[place]] = list[place + 1] end
  return fields
end

local function keep_of(job, record)
  if has(job.flags, NOT_KEPT) then return false end
  return tonumber(record.k)
end

local function limits_of(record)
  local names = {}
  for name in string.gmatch(record.l or '', '%S+') do names[#names + 1] = name end
  return names
end

-- The batch of the new job: the options of the job, then those that are given.
local function batch_of(job, record, set)
  local names, batch = marks.of(job), {}
  for name, value in pairs(job.spec) do batch[name] = value end
  batch.run, batch.share, batch.keep = record.x, record.i, keep_of(job, record)
  batch.at_most_once = has(job.flags, AT_MOST_ONCE) or nil
  batch.tags, batch.scope, batch.limits, batch.fields = names.tags, names.scope, limits_of(record), own_fields_of(job)
  for name, value in pairs(set) do
    if name ~= 'fields' then batch[name] = value end
  end
  for name, text in pairs(set.fields or {}) do batch.fields[name] = text end
  if batch.run == '' then batch.run = nil end
  if type(batch.limits) == 'table' and #batch.limits == 0 then batch.limits = nil end
  if type(batch.after) == 'table' and #batch.after == 0 then batch.after = nil end
  return batch
end

local function copy_blob(letter, id, new, record, fields)
  local value = record[letter]
  if not value then return end
  if value == '>' and redis.call('COPY', key.blob(letter, id), key.blob(letter, new), 'REPLACE') == 0 then return end
  fields[#fields + 1], fields[#fields + 2] = letter, value
end

-- Returns a function that completes the record of the new job.
local function copier(job, record, from_start)
  return function(new, fields)
    copy_blob('p', job.id, new.id, record, fields)
    fields[#fields + 1], fields[#fields + 2] = 'j', job.id
    add_note(new, 'f', string.format('from %s at attempt %d%s', job.id, job.attempt, from_start and ', from the start' or ''))
    if from_start then return end
    copy_blob('c', job.id, new.id, record, fields)
    copy_blob('f', job.id, new.id, record, fields)
    redis.call('COPY', key.steps(job.id), key.steps(new.id), 'REPLACE')
  end
end

-- Returns whether this fork exists. Refuses if the id is that of another job.
local function exists(args)
  if redis.call('EXISTS', key.job(args.new)) == 0 then return false end
  local _, from = require_job(args.new, 'j')
  if from == args.id then return true end
  refuse('EXISTS', 'job ' .. args.new .. ' already exists, and is not a fork of job ' .. args.id)
end

local function check_fork(args)
  check_id(args.id)
  check_id(args.new)
  check_options(args.set or {})
  if args.from_start ~= nil and type(args.from_start) ~= 'boolean' then
    refuse('INVALID', '`from_start` must be true or false')
  end
  if exists(args) then return nil end
  local job = require_job(args.id)
  local record = read_record(args.id)
  if args.run and args.run ~= (record.x or '') then
    refuse('STATE', 'job ' .. args.id .. ' has advanced to another call meanwhile: fork it again')
  end
  check_blob(args.id, record, 'p')
  if not args.from_start then check_saved(args.id, record) end
  return job, record
end

register('fork', {}, function(args)
  local job, record = check_fork(args)
  if not job then return { 0, (describe(args.new, true, true)) }, true end
  local call = { batches = { batch_of(job, record, args.set or {}) }, adder = args.adder, on_exists = 'error' }
  call.batches[1].ids = { args.new }
  enqueue(call, { '', args.new, '' }, copier(job, record, args.from_start))
  job = load_job(args.id) -- the new job may wait for it
  add_note(job, 'f', 'into ' .. args.new)
  emit('forked', job, args.new)
  flush()
  publish_events()
  return { 1, (describe(args.new, true, true)) }
end)
