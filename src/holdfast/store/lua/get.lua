-- get: jobs by id.
--
--   args.ids     up to 1,000
--   args.brief   omit payload, result, checkpoint, attempts, notes and fields
--
-- Errors: INVALID, TOOBIG.
--
-- Returns for each job a list of names and values (see `describe_job`), or nil. A lost payload or checkpoint is omitted. A job
-- whose record cannot be read, or whose result is lost although it succeeded, is described by `id` and `unreadable`: NEWER or
-- DAMAGED; in a list also NOTFOUND, for an index entry without a record.

local AFTER, ALONE, AT_MOST_ONCE, CANCELLING = core.AFTER, core.ALONE, core.AT_MOST_ONCE, core.CANCELLING
local EXTRA, FINAL, INDEXED, errors, expiry = core.EXTRA, core.FINAL, core.INDEXED, core.errors, core.expiry
local budgets, fingerprints, limits, marks = core.budgets, core.fingerprints, core.limits, core.marks
local NOTE_OF, NOT_KEPT, parse_note = core.NOTE_OF, core.NOT_KEPT, core.parse_note
local OUTCOME_OF, WHY_FINAL, attempt_field = core.OUTCOME_OF, core.WHY_FINAL, core.attempt_field
local check_ids, decimal, dependencies, has = core.check_ids, core.decimal, core.dependencies, core.has
local load_blob, option, read_job, refuse = core.load_blob, core.option, core.read_job, core.refuse
local is_stalled, last_heartbeat = core.is_stalled, core.last_heartbeat
local register, setting, unpack_attempt = core.register, core.setting, core.unpack_attempt

local NO_ERROR = { '', '' } -- fingerprint and description
local MAX_REPLY = 67108864 -- bytes of payloads, results, checkpoints, errors, notes and fields in one reply

-- Add the record of a fingerprint to the examples, once. Returns its size.
local function add_example(examples, fingerprint)
  if examples[fingerprint] then return 0 end
  local row = fingerprints.load(fingerprint, 'place', 'job', 'attempt', 'traceback')
  examples[fingerprint] = true
  if not row[2] then return 0 end -- it has expired
  examples[#examples + 1] = { fingerprint, row[1] or '', row[2], tonumber(row[3]) or 0, row[4] or '' }
  return #(row[4] or '')
end

-- Returns the attempts, the examples of their errors, and the size of both.
local function describe_attempts(job, fields)
  local attempts, examples, bytes = {}, {}, 0
  local known = has(job.flags, EXTRA) and errors.load(job) or {}
  for number = math.max(1, job.attempt - setting('history', job.queue) + 1), job.attempt do
    local name = decimal[number]
    local packed = fields['a' .. name]
    if packed then
      local run, failed = unpack_attempt(packed), known[number] or NO_ERROR
      attempts[#attempts + 1] = { number, run.claimed - run.waited, run.claimed,
        run.delay > 0 and run.claimed + run.delay - 1 or 0, run.outcome ~= '-' and run.claimed + run.ran or 0,
        OUTCOME_OF[run.outcome], run.pid, run.executor, fields['o' .. name] or '', failed[2], failed[1] }
      bytes = bytes + #failed[2]
      if failed[1] ~= '' then bytes = bytes + add_example(examples, failed[1]) end
    end
  end
  return attempts, examples, bytes
end

-- Returns the notes, how limits have parked the job, and the size of both.
local function describe_notes(id)
  local notes, parked, bytes = {}, {}, 0
  for _, packed in ipairs(redis.call('LRANGE', key.notes(id), 0, -1)) do
    local time, letter, text, who = parse_note(packed)
    if letter == 't' then
      parked[#parked + 1] = limits.describe_parked(time, text)
    else
      notes[#notes + 1] = { time, NOTE_OF[letter] or 'noted', text, who }
    end
    bytes = bytes + #packed
  end
  return notes, parked, bytes
end

-- The dependencies that the job was enqueued with, in order; and those added while it ran, by id. Of each: id, state, and
-- when the job learned of it, or 0.
local function describe_after(id)
  local marks, rows, waits = redis.call('HGETALL', key.after(id)), {}, {}
  for at = 1, #marks, 2 do
    local place, letter, _, _, time = dependencies.parse_edge(marks[at + 1])
    local list = place > 0 and rows or waits
    list[#list + 1] = { place, marks[at], dependencies.STATE_OF[letter], time }
  end
  local function is_before(one, other) return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2]) end
  for _, list in ipairs({ rows, waits }) do
    table.sort(list, is_before)
    for place, row in ipairs(list) do list[place] = { row[2], row[3], row[4] } end
  end
  return rows, waits
end

-- The queue, priority and task that a job was enqueued with, if they have changed; and the time of the last move that its
-- history no longer has, or 0.
local function describe_origin(field)
  local queue, priority, task, moved = string.match(field or '', '^(%S+) (%-?%d+) (%S+) ?(%d*)$')
  return queue and { queue, tonumber(priority), task, tonumber(moved) or 0 } or {}
end

-- When the job or its options changed last.
local function updated_at(job)
  local last = has(job.flags, EXTRA) and redis.call('LINDEX', key.notes(job.id), -1)
  return last and math.max(job.since, (parse_note(last))) or job.since
end

local function describe_more(id, reply, fields, job)
  local bytes = 0
  for letter, name in pairs({ p = 'payload', r = 'result', c = 'checkpoint' }) do
    if fields[letter] then
      local blob = load_blob(letter, id, fields[letter])
      if not blob and letter == 'r' then error('the result is missing', 0) end -- not to be mistaken for an empty result
      if blob then
        bytes = bytes + #blob
        reply[#reply + 1], reply[#reply + 2] = name, blob
      end
    end
  end
  local attempts, examples, more = describe_attempts(job, fields)
  local notes, parked, size = describe_notes(id)
  if fields.m then parked[#parked + 1] = limits.describe_spell(fields.m, fields.z) end
  local own = redis.call('HGETALL', key.fields(id))
  for _, text in ipairs(own) do size = size + #text end
  local rows, waits = {}, {}
  if has(job.flags, AFTER) then rows, waits = describe_after(id) end
  for _, part in ipairs({ 'attempts', attempts, 'examples', examples, 'notes', notes, 'fields', own, 'after', rows, 'waits', waits,
    'enqueued_as', describe_origin(fields.e), 'parked', parked }) do
    reply[#reply + 1] = part
  end
  return bytes + more + size
end

-- Only a job with marks has these names in its description.
local function describe_marks(job, reply)
  local names = marks.read(job)
  for _, part in ipairs({ 'tags', names.tags, 'scope', names.scope or '', 'batch', names.batch or names.ends or '', 'tracked', names.tracked and 1 or 0 }) do
    reply[#reply + 1] = part
  end
end

-- Only a running job has these names in its description.
local function describe_lease(job, timer, run, reply)
  local marks = run and redis.call('HGET', key.held(run.executor), job.id)
  for _, part in ipairs({ 'heartbeat', last_heartbeat(job, timer, marks), 'stalled', is_stalled(job, timer) and 1 or 0 }) do
    reply[#reply + 1] = part
  end
end

local function describe_job(id, brief)
  local list = redis.call('HGETALL', key.job(id))
  if #list == 0 then return false, 'NOTFOUND' end
  local fields = {}
  for place = 1, #list, 2 do fields[list[place]] = list[place + 1] end
  local job, fault = read_job(id, fields.s or '', fields.h or '')
  if not job then return false, fault end
  local timed = job.state == 'scheduled' or job.state == 'running'
  local timer = timed and tonumber(redis.call('ZSCORE', key.timers, id) or '')
  local current = fields[attempt_field[job.attempt]]
  local run = current and unpack_attempt(current)
  local reply = { 'id', id, 'state', job.state, 'queue', job.queue, 'task', job.task, 'codec', job.spec.codec,
    'priority', job.priority, 'created', job.created, 'since', job.since, 'updated', updated_at(job), 'arrival', job.arrival,
    'attempt', job.attempt, 'retries_used', job.retries_used, 'retries', option(job, 'retries'), 'backoff', option(job, 'backoff'),
    'crashes_used', job.crashes_used, 'crashes', option(job, 'crashes'), 'lost_used', job.lost_used, 'lost', option(job, 'lost'),
    'timeout', option(job, 'timeout'), 'cancelling', has(job.flags, CANCELLING) and 1 or 0, 'alone', has(job.flags, ALONE) and 1 or 0,
    'lease', job.lease, 'timer', timer or 0,
    'executor', run and run.executor or '', 'pid', run and run.pid or 0, 'claimed', run and run.claimed or 0,
    'keep', has(job.flags, NOT_KEPT) and 0 or tonumber(fields.k) or 1,
    'expires', FINAL[job.state] and job.since + expiry.time_to_live(job, fields.k or '') or 0, 'at_most_once', has(job.flags, AT_MOST_ONCE) and 1 or 0,
    'deadline', tonumber(fields.d) or 0, 'run', fields.x or '', 'share', fields.i or '', 'limits', fields.l or '',
    'throttled_by', job.state == 'throttled' and fields.z or '',
    'waits_for', job.state == 'blocked' and dependencies.parse_field(fields.b) or 0, 'unique', string.sub(fields.u or '', 2),
    'forked_from', fields.j or '',
    'group', fields.g or '', 'fingerprint', fields.v or '', 'final_reason', WHY_FINAL[fields.y] or '', 'progress', load_blob('f', id, fields.f) or '' }
  if has(job.flags, INDEXED) then describe_marks(job, reply) end
  if job.state == 'running' then describe_lease(job, timer, run, reply) end
  if job.spec.has_budgets then budgets.describe(job, reply) end
  return reply, brief and 0 or describe_more(id, reply, fields, job)
end

-- Returns the description of a job and its variable size; or false if the job does not exist, unless `listed`.
local function describe(id, brief, listed)
  local done, reply, size = pcall(describe_job, id, brief)
  if done and reply then return reply, size end
  local fault = done and size or 'DAMAGED'
  if fault == 'NOTFOUND' and not listed then return false, 0 end
  return { 'id', id, 'unreadable', fault }, 0
end

register('get', { 'no-writes' }, function(args)
  local reply, bytes = {}, 0
  for place, id in ipairs(check_ids(args.ids)) do
    local job, size = describe(id, args.brief)
    reply[place], bytes = job, bytes + size
    if bytes > MAX_REPLY then refuse('TOOBIG', 'these jobs exceed the size of one reply: get fewer at once') end
  end
  return reply
end)

core.describe = describe
