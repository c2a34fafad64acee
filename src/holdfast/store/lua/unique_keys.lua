-- unique: keys that one job at a time may have, and for how long it has it.
--
-- A key is a string: the letter of how long, the job's id, and when it was created (of `t`: until when it has the key).
--
--   q   queued: until the job starts        } the job's record has the letter and the key, and gives it back; if the job is
--   p   pending: until it ends              } gone without that, the key is free all the same
--   k   kept: as long as its record is kept }
--   t   for a time, whatever becomes of the job; it expires

local FINAL, load_job = core.FINAL, core.load_job

local LETTER_OF_SPAN = { queued = 'q', pending = 'p', kept = 'k' }

local function pack_owner(letter, id, created) return string.format('%s %s %.0f', letter, id, created) end

-- The id of the job that has a key, or nothing.
local function owner_of(unique)
  local letter, id, time = string.match(redis.call('GET', key.unique(unique)) or '', '^(%l) (%S+) (%d+)$')
  if not letter then return nil end
  if letter == 't' then return tonumber(time) > now and id or nil end
  local job, fault = load_job(id)
  if not job then return fault ~= 'NOTFOUND' and id or nil end -- nobody can tell: it has it
  if job.created ~= tonumber(time) then return nil end
  if letter == 'q' and (job.state == 'running' or FINAL[job.state]) then return nil end
  if letter == 'p' and FINAL[job.state] then return nil end
  return id
end

-- Give a key to a new job: `span` is a word above, or milliseconds. Returns what the job's record keeps.
local function acquire_key(unique, span, id)
  local letter = LETTER_OF_SPAN[span]
  if letter then
    redis.call('SET', key.unique(unique), pack_owner(letter, id, now))
    return letter .. unique
  end
  redis.call('SET', key.unique(unique), pack_owner('t', id, now + span), 'PX', span)
  return 't' .. unique
end

-- A job starts, ends, or goes: its key is free if its letter is one of these.
local function release_key(job, letters)
  local letter, unique = string.match(redis.call('HGET', key.job(job.id), 'u') or '', '^(%l)(.+)$')
  if not letter or not string.find(letters, letter, 1, true) then return end
  if redis.call('GET', key.unique(unique)) == pack_owner(letter, job.id, job.created) then
    redis.call('DEL', key.unique(unique))
  end
end

-- A job that has ended begins anew, or did not start after all: it has its key again, if it is free. Returns whether it is
-- not.
local function reacquire_key(job)
  local letter, unique = string.match(redis.call('HGET', key.job(job.id), 'u') or '', '^(%l)(.+)$')
  if not letter or letter == 't' then return false end
  local owner = owner_of(unique)
  if owner and owner ~= job.id then return true end
  redis.call('SET', key.unique(unique), pack_owner(letter, job.id, job.created))
  return false
end

core.LETTER_OF_SPAN, core.owner_of, core.acquire_key, core.release_key = LETTER_OF_SPAN, owner_of, acquire_key, release_key
core.reacquire_key = reacquire_key
