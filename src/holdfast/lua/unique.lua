-- unique: keys that one job at a time may have, and for how long it has it.
--
-- A key is a string: the letter of how long, the job's id, and when it was created.
--
--   q   queued: until the job starts        } the job's record has the letter and the key, and gives it back; if the job is
--   p   pending: until it ends              } gone without that, the key is free all the same
--   k   kept: as long as its record is kept }
--   t   for a time, whatever becomes of the job

local LETTER_OF_SPAN = { queued = 'q', pending = 'p', kept = 'k' }

local function ticket(letter, id, created) return string.format('%s %s %.0f', letter, id, created) end

-- The id of the job that has a key, or nothing.
local function owner_of(unique)
  local letter, id, created = string.match(redis.call('GET', key.unique(unique)) or '', '^(%l) (%S+) (%d+)$')
  if not letter or letter == 't' then return id end
  local job = load_job(id)
  if not job or job.created ~= tonumber(created) then return nil end
  if letter == 'q' and (job.state == 'running' or FINAL[job.state]) then return nil end
  if letter == 'p' and FINAL[job.state] then return nil end
  return id
end

-- Give a key to a job: `span` is a word above, or milliseconds. Returns what the job's record keeps, if anything.
local function take_key(unique, span, id, created)
  local letter = LETTER_OF_SPAN[span]
  redis.call('SET', key.unique(unique), ticket(letter or 't', id, created))
  if letter then return letter .. unique end
  redis.call('PEXPIRE', key.unique(unique), span)
end

-- A job starts, ends, or goes: its key is free if its letter is one of these.
local function free_key(job, letters)
  local letter, unique = string.match(redis.call('HGET', key.job(job.id), 'u') or '', '^(%l)(.+)$')
  if not letter or not string.find(letters, letter, 1, true) then return end
  if redis.call('GET', key.unique(unique)) == ticket(letter, job.id, job.created) then
    redis.call('DEL', key.unique(unique))
  end
end

-- A job that has ended begins anew: it has its key again, if it is free. Returns whether it is not.
local function take_key_again(job)
  local letter, unique = string.match(redis.call('HGET', key.job(job.id), 'u') or '', '^(%l)(.+)$')
  if not letter then return false end
  local owner = owner_of(unique)
  if owner and owner ~= job.id then return true end
  redis.call('SET', key.unique(unique), ticket(letter, job.id, job.created))
  return false
end
