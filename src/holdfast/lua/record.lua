-- record: a job as it is stored, and as the functions see it.
--
-- One hash per job. No field is longer than 64 bytes, or the hash doubles in size (but for a head with two long names, many
-- limits, many who wait, and what workers are told of a job with several options of its run or something carried). Numbers are packed big-endian; zeros at the end are left out, so what is not used costs nothing.
--
--   h     head: version, created, queue, task, then options (0: not given, the default holds)
--   s     status: state and counters
--   p     payload            } in the record up to 64 bytes; longer ones in a
--   r     result             } key of their own, and then the field holds
--   c     checkpoint         } the single character '>'
--   f     progress, as the job reported it; as above
--   g     group of the failure
--   d     no attempt may start after this time; see deadline.lua
--   b     how many jobs it waits for; see after.lua
--   i     whose it is, among those that share a queue; see fair.lua
--   l     the limits in which it takes part; z: the one by which it was parked last; see limit.lua
--   x     how a worker is to run it, as text that only workers read
--   u     unique key, after the letter that says for how long; see unique.lua
--   w     inboxes of those who wait for the result; the only field that may grow, with many who wait
--   a<n>  attempt n: times, process id, how it ended, executor
--   o<n>  why attempt n ended, in words

local NOTE, NOTE_SIZE = '>I6c1', 7
local INLINE = 64 -- bytes
local MOST_NOTE = LIMITS.MOST_NOTE -- bytes

-- Flags: of the moment, and for good.
local RETRYING, CANCELLING, ALONE = 1, 2, 4
local UNKEPT, UNIQUE, ONCE, AFTER, AWAITED, LIMITED, FAIR, DEADLINE = 8, 16, 32, 64, 128, 256, 512, 1024

local LETTER_OF = {
  scheduled = 's', waiting = 'w', blocked = 'b', throttled = 't', running = 'r',
  succeeded = 'S', failed = 'F', cancelled = 'C',
}
local STATES = { 'scheduled', 'waiting', 'blocked', 'throttled', 'running', 'succeeded', 'failed', 'cancelled' }
local FINAL = { succeeded = true, failed = true, cancelled = true }

local CODEC_NUMBER = { json = 0, raw = 1 }

local OUTCOME_OF = {
  ['-'] = 'running', S = 'succeeded', E = 'error', K = 'crash', L = 'lost', R = 'released', Z = 'snoozed',
  U = 'unknown', C = 'cancelled', A = 'advanced',
}

local function has(flags, flag) return flags >= flag and math.floor(flags / flag) % 2 == 1 end

local function with(flags, flag, wanted)
  if has(flags, flag) == wanted then return flags end
  return wanted and flags + flag or flags - flag
end

-- The flags that stay when a job ends, or begins anew.
local function lasting(flags)
  return with(with(with(flags, RETRYING, false), CANCELLING, false), ALONE, false)
end

local pack_head, change_head, unpack_head, pack_status, unpack_status, pack_attempt, unpack_attempt
do

local VERSION = 1
local HEAD, STATUS, ATTEMPT = '>BI6ssBhI2I2I2I4I6', '>c1I6I6I4I4I2I2I2I2B', '>I6I5I4I5I4c1'
local ATTEMPT_SIZE = 25
local NEW_SIZE, PLAIN_SIZE = 13, 21 -- of a status: what comes after that is 0 before the first attempt, and mostly later too
local ZEROS = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local CODECS = { [0] = 'json', 'raw' }
local STATE_OF = { -- the other way round: no library function, not even `pairs`, can be called while this is loaded
  s = 'scheduled', w = 'waiting', b = 'blocked', t = 'throttled', r = 'running',
  S = 'succeeded', F = 'failed', C = 'cancelled',
}

local function trim(packed)
  local size = #packed
  while string.byte(packed, size) == 0 do size = size - 1 end
  return string.sub(packed, 1, size)
end

pack_head = function(o)
  return trim(struct.pack(HEAD, VERSION, o.created, o.queue, o.task, CODEC_NUMBER[o.codec or 'json'], o.priority or 0,
    o.retries and o.retries + 1 or 0, o.crashes and o.crashes + 1 or 0, o.lost and o.lost + 1 or 0,
    o.backoff and o.backoff + 1 or 0, o.timeout and o.timeout + 1 or 0))
end

-- A head with some of its parts changed: queue, task, priority.
change_head = function(packed, changes)
  local version, created, queue, task, codec, priority, retries, crashes, lost, backoff, timeout =
    struct.unpack(HEAD, packed .. ZEROS)
  return trim(struct.pack(HEAD, version, created, changes.queue or queue, changes.task or task, codec,
    changes.priority or priority, retries, crashes, lost, backoff, timeout))
end

unpack_head = function(job, packed)
  local version, created, queue, task, codec, priority, retries, crashes, lost, backoff, timeout =
    struct.unpack(HEAD, packed .. ZEROS)
  if version ~= VERSION then refuse('SCHEMA', 'job ' .. job.id .. ' was written by a newer release: upgrade this one') end
  job.created, job.queue, job.task, job.codec, job.priority = created, queue, task, CODECS[codec], priority
  job.retries = retries > 0 and retries - 1 or setting('retries', queue)
  job.most_crashes = crashes > 0 and crashes - 1 or setting('crashes', queue)
  job.most_lost = lost > 0 and lost - 1 or setting('lost', queue)
  job.backoff = backoff > 0 and backoff - 1 or setting('backoff', queue)
  job.timeout = timeout > 0 and timeout - 1 or setting('timeout', queue)
end

pack_status = function(job)
  local packed = struct.pack(STATUS, LETTER_OF[job.state], job.since, job.arrival, job.attempt, job.lease, job.retried,
    job.crashes, job.lost, job.flags, job.misses)
  local is_plain = job.flags + job.retried + job.crashes + job.lost + job.misses == 0
  return trim(is_plain and string.sub(packed, 1, job.attempt > 0 and PLAIN_SIZE or NEW_SIZE) or packed)
end

unpack_status = function(job, packed)
  local letter
  letter, job.since, job.arrival, job.attempt, job.lease, job.retried, job.crashes, job.lost, job.flags, job.misses =
    struct.unpack(STATUS, packed .. ZEROS)
  job.state = STATE_OF[letter]
end

-- An attempt: claimed, waited (before that), delay (until started, plus one; 0: not known), ran (until ended), pid,
-- outcome, executor.
pack_attempt = function(a)
  return struct.pack(ATTEMPT, a.claimed, a.waited, a.delay, a.ran, a.pid, a.outcome) .. a.executor
end

unpack_attempt = function(packed)
  local claimed, waited, delay, ran, pid, outcome = struct.unpack(ATTEMPT, packed)
  return { claimed = claimed, waited = waited, delay = delay, ran = ran, pid = pid, outcome = outcome,
    executor = string.sub(packed, ATTEMPT_SIZE + 1) }
end

end

local function new_job(id, queue, arrival)
  return { id = id, queue = queue, since = now, arrival = arrival, attempt = 0, lease = 0, retried = 0, crashes = 0,
    lost = 0, flags = 0, misses = 0 }
end

-- Read a job, and up to three more fields of its record: returns the job and their values, or nothing.
local function load_job(id, ...)
  local values = redis.call('HMGET', key.job(id), 's', 'h', ...)
  if not values[1] then return nil end
  local job = { id = id }
  unpack_status(job, values[1])
  unpack_head(job, values[2])
  return job, values[3], values[4], values[5]
end

-- What notes are about, by their letters.
local NOTE_OF = { C = 'cancelled', c = 'cancelling', R = 'retried', n = 'said', N = 'noted', F = 'failed' }

-- Long values have a key of their own. Returns what the record holds.
local function store_blob(letter, id, bytes)
  if #bytes <= INLINE and bytes ~= '>' then return bytes end
  redis.call('SET', key.blob(letter, id), bytes)
  return '>'
end

local function load_blob(letter, id, field)
  if field == '>' then return redis.call('GET', key.blob(letter, id)) end
  return field
end

-- The beginning of a text, no more than so many bytes of it, and no half of a character.
local function cut(text, most)
  if #text <= most then return text end
  while most > 0 and has(string.byte(text, most + 1), 128) and not has(string.byte(text, most + 1), 64) do most = most - 1 end
  return string.sub(text, 1, most)
end

-- Write down what happened to a job outside of attempts. The letter says what.
local function note(job, letter, words)
  local notes = key.notes(job.id)
  redis.call('RPUSH', notes, struct.pack(NOTE, now, letter) .. cut(words or '', MOST_NOTE))
  redis.call('LTRIM', notes, -setting('history', job.queue), -1)
end
