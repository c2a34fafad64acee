-- unique_keys: keys that only one job can own at a time.
--
-- A key is a string: the letter of its span, the id of its owner, and when that job was created (`t`: when the key expires).
--
--   q   queued: until the job starts        } the job's record contains letter and key, and the job releases the key; if
--   p   pending: until it ends              } the job is gone without that, the key is free all the same
--   k   kept: as long as its record exists  }
--   t   for a fixed time, no matter what happens to the job; the key expires

local FINAL, load_job = core.FINAL, core.load_job

local LETTER_OF_SPAN = { queued = 'q', pending = 'p', kept = 'k' }

local function pack_owner(letter, id, created) return string.format('%s %s %.0f', letter, id, created) end

-- The id of the job that owns a key, or nil.
local function owner_of(unique)
  local letter, id, time = string.match(redis.call('GET', key.unique(unique)) or '', '^(%l) (%S+) (%d+)$')
  if not letter then return nil end
  if letter == 't' then return tonumber(time) > now and id or nil end
  local job, fault = load_job(id)
  if not job then return fault ~= 'NOTFOUND' and id or nil end -- unreadable: assume that it still owns the key
  if job.created ~= tonumber(time) then return nil end
  if letter == 'q' and (job.state == 'running' or FINAL[job.state]) then return nil end
  if letter == 'p' and FINAL[job.state] then return nil end
  return id
end

-- Give a key to a new job. `span` is a word above, or milliseconds. Returns what the job's record stores.
local function acquire_key(unique, span, id)
  local letter = LETTER_OF_SPAN[span]
  if letter then
    redis.call('SET', key.unique(unique), pack_owner(letter, id, now))
    return letter .. unique
  end
  redis.call('SET', key.unique(unique), pack_owner('t', id, now + span), 'PX', span)
  return 't' .. unique
end

-- Release the key of a job that starts, ends or is deleted, if its span is one of `letters`.
local function release_key(job, letters)
  local letter, unique = string.match(redis.call('HGET', key.job(job.id), 'u') or '', '^(%l)(.+)$')
  if not letter or not string.find(letters, letter, 1, true) then return end
  if redis.call('GET', key.unique(unique)) == pack_owner(letter, job.id, job.created) then
    redis.call('DEL', key.unique(unique))
  end
end

-- A job restarts, or did not start after all: give it its key again. Returns whether another job owns the key now.
local function reacquire_key(job)
  local letter, unique = string.match(redis.call('HGET', key.job(job.id), 'u') or '', '^(%l)(.+)$')
  if not letter or letter == 't' then return false end
  local owner = owner_of(unique)
  if owner and owner ~= job.id then return true end
  redis.call('SET', key.unique(unique), pack_owner(letter, job.id, job.created))
  return false
end

core.LETTER_OF_SPAN, core.owner_of, core.acquire_key = LETTER_OF_SPAN, owner_of, acquire_key
core.release_key, core.reacquire_key, core.pack_owner = release_key, reacquire_key, pack_owner
