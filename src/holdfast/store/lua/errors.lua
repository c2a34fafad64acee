-- errors: how attempts of a job failed: a list, oldest first.
--
-- An entry is `>I4I4s`: the first and the last of the attempts in a row that failed in exactly this way, and the fingerprint;
-- then the description that the executor sent, which only clients read. The traceback is in the record of the fingerprint.

local EXTRA, has, setting, with = core.EXTRA, core.has, core.setting, core.with

local ENTRY = '>I4I4s'

local errors = {}

local function unpack_entry(entry)
  local first, last, fingerprint, at = struct.unpack(ENTRY, entry)
  return first, last, fingerprint, string.sub(entry, at)
end

-- Record the error of the current attempt. The status, with the changed flag, is written with the job's move.
function errors.add(job, fingerprint, description)
  local list, attempt = key.errors(job.id), job.attempt
  local newest = has(job.flags, EXTRA) and redis.call('LINDEX', list, -1)
  job.flags = with(job.flags, EXTRA, true)
  if newest then
    local first, last, known, text = unpack_entry(newest)
    if last == attempt - 1 and known == fingerprint and text == description then
      return redis.call('LSET', list, -1, struct.pack(ENTRY, first, attempt, fingerprint) .. description)
    end
  end
  redis.call('RPUSH', list, struct.pack(ENTRY, attempt, attempt, fingerprint) .. description)
end

-- The errors of the attempts that are kept, as number -> { fingerprint, description }.
function errors.load(job)
  local found, kept = {}, job.attempt - setting('history', job.queue) + 1
  for _, entry in ipairs(redis.call('LRANGE', key.errors(job.id), 0, -1)) do
    local first, last, fingerprint, description = unpack_entry(entry)
    for number = math.max(first, kept), math.min(last, job.attempt) do found[number] = { fingerprint, description } end
  end
  return found
end

-- The fingerprint and description of one attempt; nil if it has none.
function errors.find(id, attempt)
  for _, entry in ipairs(redis.call('LRANGE', key.errors(id), 0, -1)) do
    local first, last, fingerprint, description = unpack_entry(entry)
    if attempt >= first and attempt <= last then return fingerprint, description end
  end
end

-- Forget the errors of attempts up to this one.
function errors.forget(id, attempt)
  local list = key.errors(id)
  local oldest = redis.call('LINDEX', list, 0)
  while oldest do
    local _, last = unpack_entry(oldest)
    if last > attempt then return end
    redis.call('LPOP', list)
    oldest = redis.call('LINDEX', list, 0)
  end
end

core.errors = errors
