-- record: a job as it is stored, and as functions see it.
--
-- One hash per job. Fields stay within 64 bytes, beyond which the server doubles the size of the hash; exceptions are a head
-- with two long names, many limits, many waiters, and long run options. Numbers are packed big-endian without trailing
-- zeros, so unused ones cost nothing.
--
--   h     head: version, created, queue, task, then options (0: not set, the default applies)
--   s     status: state and counters
--   p     payload            } inline up to 64 bytes; longer values have a
--   r     result             } key of their own, and the field contains
--   c     checkpoint         } the single character '>'
--   f     progress as the job reported it; stored likewise
--   g     of a failed job: failure group; v: fingerprint; y: why the failure is final, a letter of WHY_FINAL
--   q     who requested to cancel the running job, a space, and why
--   d     deadline: no attempt may start after this time; see deadlines.lua
--   k     time to live after its end, in milliseconds; see expiry.lua
--   b     number of unmet dependencies; see dependencies.lua
--   i     share; see shares.lua
--   e     of a job that has changed its queue, priority or task: those that it was enqueued with; and the time of the last move
--         that its history no longer has; see `keep_origin`
--   l     names of its limits; z: the limit that parked it last; m: how often before its next attempt; see limits.lua
--   x     run options, as text that only workers read
--   t     marks: tags, scope, batch, tracked; stored likewise, as blob `m`; see marks.lua
--   j     of a fork: the job that it was forked from; see fork.lua
--   u     unique key, after the letter of its span; see unique_keys.lua
--   w     inboxes of the programs that wait for the result
--   a<n>  attempt n: times, process id, outcome, executor
--   o<n>  why attempt n ended, as text
--
-- Readers never raise. A record that cannot be read is reported as NOTFOUND (no record), NEWER (written by a newer
-- release) or DAMAGED (not written by any release).

local on_first_call, refuse, setting = core.on_first_call, core.refuse, core.setting
local MAX_NAME, MAX_NOTE, MAX_PRIORITY = constants.MAX_NAME, constants.MAX_NOTE, constants.MAX_PRIORITY
local MIN_PRIORITY = constants.MIN_PRIORITY

local NOTE, NOTE_SIZE = '>I6c1', 7
local INLINE = 64 -- bytes

-- Flags that last until the attempt ends, and permanent flags.
local RETRYING, CANCELLING, ALONE = 1, 2, 4
-- EXTRA: the job may have other keys: errors, notes, fields, steps, a log, a long checkpoint or progress. EXPIRES: it has
-- a time to live of its own. INDEXED: it has marks.
local NOT_KEPT, UNIQUE, AT_MOST_ONCE, AFTER, AWAITED = 8, 16, 32, 64, 128
local LIMITED, FAIR, DEADLINE, EXTRA, EXPIRES, INDEXED = 256, 512, 1024, 2048, 4096, 8192

local LETTER_OF = {
  scheduled = 's', waiting = 'w', blocked = 'b', throttled = 't', running = 'r',
  succeeded = 'S', failed = 'F', cancelled = 'C',
}
local FINAL = { succeeded = true, failed = true, cancelled = true }

local CODEC_NUMBER = { json = 0, raw = 1 }

local OUTCOME_OF = {
  ['-'] = 'running', S = 'succeeded', E = 'error', K = 'crash', L = 'lost', R = 'released', Z = 'snoozed',
  U = 'unknown', C = 'cancelled', A = 'advanced',
}

local WHY_FINAL = {
  E = 'exhausted', D = 'declared', R = 'refused', N = 'not_retryable', O = 'at_most_once', T = 'deadline',
  P = 'operator',
}

local function has(flags, flag) return flags >= flag and math.floor(flags / flag) % 2 == 1 end

local function with(flags, flag, wanted)
  if has(flags, flag) == wanted then return flags end
  return wanted and flags + flag or flags - flag
end

-- The flags that remain when a job ends or restarts.
local function permanent(flags)
  return with(with(with(flags, RETRYING, false), CANCELLING, false), ALONE, false)
end

-- Small numbers as text, and names of attempt fields, are cached.
local decimal, attempt_field = {}, {}

local function cache_texts(texts, make)
  setmetatable(texts, { __index = function(known, number)
    local text = make(number)
    if number >= 0 and number <= 1000 then known[number] = text end
    return text
  end })
end

on_first_call[#on_first_call + 1] = function()
  cache_texts(decimal, function(number) return string.format('%d', number) end)
  cache_texts(attempt_field, function(number) return 'a' .. decimal[number] end)
end

local VERSION = 1
local HEAD, SPEC, SPEC_AT = '>BI6', '>ssBhI2I2I2I4I6I2I2I2', 8
local STATUS, PLAIN, NEW, PLAIN_SIZE, NEW_SIZE = '>c1I6i6I4I4I2I2I2I2Bc6', '>c1I6i6I4I4', '>c1I6', 21, 7
local ATTEMPT, ATTEMPT_SIZE, MAX_START_DELAY = '>I6I5I4I5I4c1', 25, 2 ^ 31
local ZEROS = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' -- as many bytes as a status has at most: one that is cut off can be read
local NO_STOPS = '\0\0\0\0\0\0' -- attempts that a limit stopped, charged to budgets of their own; see budgets.lua
local CODECS = { [0] = 'json', 'raw' }
local STATE_OF = { -- the reverse of LETTER_OF; it cannot be computed, as `pairs` cannot be called during loading
  s = 'scheduled', w = 'waiting', b = 'blocked', t = 'throttled', r = 'running',
  S = 'succeeded', F = 'failed', C = 'cancelled',
}

local function trim(packed)
  local size = #packed
  while string.byte(packed, size) == 0 do size = size - 1 end
  return string.sub(packed, 1, size)
end

-- A head is a version, the creation time, and a spec: what jobs of one kind have in common.
local function pack_spec(o)
  return trim(struct.pack(SPEC, o.queue, o.task, CODEC_NUMBER[o.codec or 'json'], o.priority or 0,
    o.retries and o.retries + 1 or 0, o.crashes and o.crashes + 1 or 0, o.lost and o.lost + 1 or 0,
    o.backoff and o.backoff + 1 or 0, o.timeout and o.timeout + 1 or 0,
    o.timeouts and o.timeouts + 1 or 0, o.stalls and o.stalls + 1 or 0, o.out_of_memory and o.out_of_memory + 1 or 0))
end

local function pack_head(created, spec) return struct.pack(HEAD, VERSION, created) .. spec end

-- Options are stored plus one; 0 stands for nil.
local function given(number) return number > 0 and number - 1 or nil end

-- Most jobs are of few kinds, so parsed specs are cached.
local known_specs, known_count = {}, 0

local function unpack_spec(packed)
  local queue, task, codec, priority, retries, crashes, lost, backoff, timeout, timeouts, stalls, out_of_memory = struct.unpack(SPEC, packed .. ZEROS)
  if #queue > MAX_NAME or not string.find(queue, '^[%w_.%-]+$') then error('the name of the queue', 0) end
  if #task < 1 or #task > MAX_NAME or string.find(task, '[%c\128-\255]') then error('the name of the task', 0) end
  if not CODECS[codec] or priority < MIN_PRIORITY or priority > MAX_PRIORITY then error('codec or priority', 0) end
  return { queue = queue, task = task, codec = CODECS[codec], priority = priority, retries = given(retries),
    crashes = given(crashes), lost = given(lost), backoff = given(backoff), timeout = given(timeout), timeouts = given(timeouts), stalls = given(stalls),
    out_of_memory = given(out_of_memory), has_budgets = timeouts + stalls + out_of_memory > 0 }
end

-- Returns nil if the spec is damaged.
local function read_spec(packed)
  local spec = known_specs[packed]
  if spec then return spec end
  local is_right, read = pcall(unpack_spec, packed)
  if not is_right then return nil end
  spec = read
  if known_count >= 1000 then known_specs, known_count = {}, 0 end
  known_specs[packed], known_count = spec, known_count + 1
  return spec
end

-- A head with another queue and priority.
local function change_head(packed, queue, priority)
  local spec = {}
  for name, value in pairs(read_spec(string.sub(packed, SPEC_AT))) do spec[name] = value end
  spec.queue, spec.priority = queue, priority
  return string.sub(packed, 1, SPEC_AT - 1) .. pack_spec(spec)
end

-- The status of a job that is in its first state.
local function pack_new(state, arrival) return struct.pack(NEW, LETTER_OF[state], arrival) end

-- Pack as few numbers as possible: new jobs need two, most others five.
local function pack_status(job)
  local letter, arrival, since, attempt = LETTER_OF[job.state], job.arrival, job.since - job.created, job.attempt
  local stops = job.stops or NO_STOPS
  if job.flags + job.retries_used + job.crashes_used + job.lost_used + job.misses > 0 or stops ~= NO_STOPS then
    return trim(struct.pack(STATUS, letter, arrival, since, attempt, job.lease, job.retries_used, job.crashes_used, job.lost_used, job.flags,
      job.misses, stops))
  end
  if attempt == 0 and since == 0 then return pack_new(job.state, arrival) end
  return struct.pack(PLAIN, letter, arrival, since, attempt, job.lease)
end

-- Jobs stored by one call have the same head and are usually read in a row, so the last head is cached.
local last_head, created, spec

-- Returns nil, or why the head cannot be read.
local function read_head(head)
  if #head < SPEC_AT then return 'DAMAGED' end
  local version, time = struct.unpack(HEAD, head)
  if version ~= VERSION then return version > VERSION and 'NEWER' or 'DAMAGED' end
  local read = read_spec(string.sub(head, SPEC_AT))
  if not read then return 'DAMAGED' end
  last_head, created, spec = head, time, read
end

-- Returns a new table, or `job` filled in; or nil, and why the record cannot be read.
local function read_job(id, status, head, job)
  if head ~= last_head then
    local fault = read_head(head)
    if fault then return nil, fault end
  end
  local letter, arrival
  local size, since, attempt, lease, retries_used, crashes_used, lost_used, flags, misses, stops = #status, 0, 0, 0, 0, 0, 0, 0, 0, NO_STOPS
  if size == NEW_SIZE then
    letter, arrival = struct.unpack(NEW, status)
  elseif size == PLAIN_SIZE then
    letter, arrival, since, attempt, lease = struct.unpack(PLAIN, status)
  else
    letter, arrival, since, attempt, lease, retries_used, crashes_used, lost_used, flags, misses, stops = struct.unpack(STATUS, status .. ZEROS)
  end
  local state = STATE_OF[letter]
  if not state then return nil, 'DAMAGED' end
  job = job or { id = 0, state = 0, since = 0, arrival = 0, attempt = 0, lease = 0, retries_used = 0, crashes_used = 0, lost_used = 0, flags = 0,
    misses = 0, created = 0, queue = 0, task = 0, priority = 0, spec = 0 } -- full size from the start, to avoid rehashing
  job.id, job.state, job.since, job.created, job.arrival = id, state, created + since, created, arrival
  job.attempt, job.lease, job.flags, job.misses = attempt, lease, flags, misses
  job.retries_used, job.crashes_used, job.lost_used = retries_used, crashes_used, lost_used
  job.queue, job.task, job.priority, job.spec = spec.queue, spec.task, spec.priority, spec
  if stops ~= (job.stops or NO_STOPS) then job.stops = stops end -- few jobs have some, so it has no room of its own
  return job
end

-- An attempt: claimed, waited (before the claim), delay (from claim to start plus one; 0: unknown), ran (from claim to
-- end), pid, outcome, executor.
local function pack_attempt(claimed, waited, delay, ran, pid, outcome, executor)
  return struct.pack(ATTEMPT, claimed, waited, delay, ran, pid, outcome) .. executor
end

local NO_EXECUTOR = '?/0.0' -- an executor that never was

-- Attempts claimed by one call are often identical, so the last one read is cached. Do not modify it.
local last_packed, last_run

-- Returns nil if the attempt is missing or damaged.
local function unpack_attempt(packed)
  if packed ~= last_packed then
    if not packed or #packed <= ATTEMPT_SIZE then return nil end
    local claimed, waited, delay, ran, pid, outcome = struct.unpack(ATTEMPT, packed)
    last_packed, last_run = packed, { claimed = claimed, waited = waited, delay = delay, ran = ran, pid = pid, outcome = outcome,
      executor = string.sub(packed, ATTEMPT_SIZE + 1) }
  end
  return last_run
end

-- Repack an attempt with what its executor reports: process id, and milliseconds from claim to start.
local function pack_run(run, report, ran, outcome)
  local delay, started = run.delay, report.started
  if started then delay = (started < MAX_START_DELAY and started or MAX_START_DELAY) + 1 end
  return struct.pack(ATTEMPT, run.claimed, run.waited, delay, ran, report.pid or run.pid, outcome) .. run.executor
end

-- An option of the job, or else the setting of its queue: retries, crashes, lost, backoff or timeout.
local function option(job, name) return job.spec[name] or setting(name, job.queue) end

-- Why a record has no status or no head. `values`: the server's reply.
local function why_unreadable(id, values)
  if values.err or values[1] or values[2] or redis.call('EXISTS', key.job(id)) == 1 then return 'DAMAGED' end
  return 'NOTFOUND'
end

-- Load a job and up to three more fields of its record. Returns the job and their values; or nil, and why not.
local function load_job(id, ...)
  local values = redis.pcall('HMGET', key.job(id), 's', 'h', ...)
  if not values[1] or not values[2] then return nil, why_unreadable(id, values) end
  local job, fault = read_job(id, values[1], values[2])
  if not job then return nil, fault end
  return job, values[3], values[4], values[5]
end

-- As above, but refuse the call if the job cannot be loaded.
local function require_job(id, ...)
  local job, first, second, third = load_job(id, ...)
  if job then return job, first, second, third end
  if first == 'NOTFOUND' then refuse('NOTFOUND', 'job ' .. id .. ' does not exist; it may have been deleted') end
  if first == 'NEWER' then refuse('NEWER', 'job ' .. id .. ' was written by a newer release: upgrade this one') end
  refuse('DAMAGED', 'the record of job ' .. id .. ' is damaged: nothing was changed')
end

-- Load jobs one at a time into a shared table. The previous job must no longer be in use.
local scratch_job

local function load_scratch_job(id, first, second)
  local values = redis.pcall('HMGET', key.job(id), 's', 'h', first, second)
  if not values[1] or not values[2] then return nil, why_unreadable(id, values) end
  local job, fault = read_job(id, values[1], values[2], scratch_job)
  if not job then return nil, fault end
  scratch_job = job
  return job, values[3], values[4]
end

-- The current attempt of a running job, or a placeholder without an executor if its record is damaged.
local function current_attempt(job)
  local run = unpack_attempt(redis.call('HGET', key.job(job.id), attempt_field[job.attempt]))
  if run and string.find(run.executor, '^[%w_.%-]+/%w+%.%d+$') then return run end
  return { claimed = job.since, waited = 0, delay = 0, ran = 0, pid = 0, outcome = '-', executor = NO_EXECUTOR }
end

-- Kinds of notes, by letter.
local NOTE_OF = {
  C = 'cancelled', c = 'cancelling', R = 'retried', n = 'reported', N = 'noted', F = 'failed', L = 'released', M = 'moved',
  P = 'priority', D = 'dependencies', w = 'queued', t = 'throttled', f = 'forked',
}

-- Store a long value under its own key. Returns what the record contains.
local function store_blob(letter, id, bytes)
  if #bytes <= INLINE and bytes ~= '>' then return bytes end
  redis.call('SET', key.blob(letter, id), bytes)
  return '>'
end

-- Returns false if the long value is missing.
local function load_blob(letter, id, field)
  if field ~= '>' then return field end
  local bytes = redis.pcall('GET', key.blob(letter, id))
  return type(bytes) == 'string' and bytes
end

-- At most `max` bytes of a text, without splitting a UTF-8 character.
local function truncate(text, max)
  if #text <= max then return text end
  while max > 0 and has(string.byte(text, max + 1), 128) and not has(string.byte(text, max + 1), 64) do max = max - 1 end
  return string.sub(text, 1, max)
end

-- Flag that the job has other keys. Call this before writing one.
local function mark_extra(job)
  if has(job.flags, EXTRA) then return end
  job.flags = job.flags + EXTRA
  if job.state then redis.call('HSET', key.job(job.id), 's', pack_status(job)) end -- otherwise the caller writes it
end

-- Drop the oldest entries of a history. If moves are among them, the record keeps the time of the last one: in which queue
-- earlier attempts ran is unknown from now on.
local function drop_notes(job, notes, count)
  local moved
  for _, packed in ipairs(redis.call('LPOP', notes, count)) do
    if string.sub(packed, NOTE_SIZE, NOTE_SIZE) == 'M' then moved = struct.unpack(NOTE, packed) end
  end
  local origin = moved and string.match(redis.call('HGET', key.job(job.id), 'e') or '', '^%S+ %S+ %S+')
  if origin then redis.call('HSET', key.job(job.id), 'e', string.format('%s %.0f', origin, moved)) end
end

-- Add an entry to the job's history. The letter is its kind; `who` did it, if that is not the caller ('': nobody); `time` is
-- when, if that is not now.
local function add_note(job, letter, text, who, time)
  mark_extra(job)
  local notes, max = key.notes(job.id), setting('history', job.queue)
  local entry = struct.pack(NOTE, time or now, letter) .. (who or caller or '') .. '\0' .. truncate(text or '', MAX_NOTE)
  local count = redis.call('RPUSH', notes, entry)
  if count > max then drop_notes(job, notes, count - max) end
end

-- Parse a note: time, letter, text, and who did it. Notes of older releases are only a text, which may have a zero byte, too.
local function parse_note(packed)
  local time, letter = struct.unpack(NOTE, packed)
  local rest = string.sub(packed, NOTE_SIZE + 1)
  local who, text = string.match(rest, '^([^%c%s]*)%z(.*)$')
  return time, letter, text or rest, who or ''
end

-- Call this before something other than a claim ends the wait of a job. Its history then still has the time at which the wait
-- began, unless that is when the job was enqueued, when its last attempt ended, or the time of its last note.
local function note_wait(job)
  if job.state ~= 'waiting' or job.since <= job.created then return end
  local run = job.attempt > 0 and unpack_attempt(redis.call('HGET', key.job(job.id), attempt_field[job.attempt]))
  local last = has(job.flags, EXTRA) and redis.call('LINDEX', key.notes(job.id), -1)
  if run and run.claimed + run.ran == job.since or last and parse_note(last) == job.since then return end
  add_note(job, 'w', '', '', job.since)
end

-- Call this before the head of a job changes. The first entry of its history has the queue, the priority and the task that it
-- was enqueued with, and is kept as long as the record.
local function keep_origin(job)
  redis.call('HSETNX', key.job(job.id), 'e', job.queue .. ' ' .. decimal[job.priority] .. ' ' .. job.task)
end

core.note_wait, core.parse_note, core.keep_origin = note_wait, parse_note, keep_origin
core.INLINE, core.RETRYING, core.CANCELLING = INLINE, RETRYING, CANCELLING
core.ALONE, core.NOT_KEPT, core.UNIQUE, core.AT_MOST_ONCE, core.AFTER = ALONE, NOT_KEPT, UNIQUE, AT_MOST_ONCE, AFTER
core.AWAITED, core.LIMITED, core.FAIR, core.DEADLINE, core.LETTER_OF = AWAITED, LIMITED, FAIR, DEADLINE, LETTER_OF
core.FINAL, core.CODEC_NUMBER, core.OUTCOME_OF, core.has, core.with = FINAL, CODEC_NUMBER, OUTCOME_OF, has, with
core.permanent, core.decimal, core.attempt_field, core.pack_spec = permanent, decimal, attempt_field, pack_spec
core.pack_head, core.change_head, core.read_job, core.pack_new = pack_head, change_head, read_job, pack_new
core.trim, core.pack_status, core.pack_attempt, core.pack_run = trim, pack_status, pack_attempt, pack_run
core.unpack_attempt, core.option, core.load_job = unpack_attempt, option, load_job
core.load_scratch_job, core.NOTE_OF, core.require_job = load_scratch_job, NOTE_OF, require_job
core.current_attempt, core.NO_EXECUTOR, core.EXTRA, core.store_blob = current_attempt, NO_EXECUTOR, EXTRA, store_blob
core.load_blob, core.truncate, core.add_note, core.WHY_FINAL = load_blob, truncate, add_note, WHY_FINAL
core.mark_extra, core.EXPIRES, core.INDEXED, core.NO_STOPS = mark_extra, EXPIRES, INDEXED, NO_STOPS
