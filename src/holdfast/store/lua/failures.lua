-- failures: failed jobs by group, by fingerprint and by task.
--
-- A failed job is in one sorted set of each kind, by the time it failed: `g` its group, `p` its fingerprint, `t` its task. Both
-- names are fields of its record, so the record decides; see repair.lua. For each kind a sorted set has the names that have jobs,
-- by the time of their last one. A name is set from its jobs whenever these change, so names and numbers are always those of the
-- jobs, and a name without jobs is gone. Beyond the maximum number of names, a job is listed under `other`; the marker `other`
-- has the kinds for which there is such a job.

local INLINE, collect, load_job, set_marker, truncate = core.INLINE, core.collect, core.load_job, core.set_marker, core.truncate

local failures = { KINDS = { 'g', 'p', 't' }, OTHER = 'other' }
local MAX_NAMES = { g = constants.MAX_GROUPS, p = constants.MAX_FINGERPRINTS, t = constants.MAX_FAILED_TASKS }
local SAMPLE = 5

-- A group as it is stored. Any text will do: what cannot be stored is replaced.
function failures.clean_group(text)
  if string.find(text, '[%c\128-\255]') then
    text = string.gsub(text, '%c', '?')
    if string.find((string.gsub(text, '[\194-\244][\128-\191]+', '')), '[\128-\255]') then text = string.gsub(text, '[\128-\255]', '?') end
  end
  return text == '' and 'error' or truncate(text, INLINE)
end

-- Whether some jobs are listed under `other`, so that the set of a name may lack jobs.
function failures.is_capped(kind) return markers.other ~= nil and string.find(markers.other, kind, 1, true) ~= nil end

-- Have `flush` set a name from its jobs.
local function change(kind, name, is_new)
  local entry = kind .. name
  if changed_failures[entry] then return end
  changed_failures[entry], changed_failures[#changed_failures + 1] = true, entry
  if is_new then changed_failures['+' .. kind] = (changed_failures['+' .. kind] or 0) + 1 end
end

local function list_under_other(kind)
  if not failures.is_capped(kind) then set_marker('other', (markers.other or '') .. kind) end
  change(kind, failures.OTHER)
  return failures.OTHER
end

-- The name to list a job under: its own, unless there are too many names.
local function choose(kind, name)
  if changed_failures[kind .. name] then return name end
  local names = key.failed_names(kind)
  local is_known = redis.call('ZSCORE', names, name)
  local coming = changed_failures['+' .. kind] or 0
  if not is_known and redis.call('ZCARD', names) + coming >= MAX_NAMES[kind] then return list_under_other(kind) end
  change(kind, name, not is_known)
  return name
end

local function names_of(job, group, fingerprint) return { g = group, p = fingerprint, t = job.task } end

-- A job that has failed: `group` and `fingerprint` are those of its record.
function failures.add(job, group, fingerprint)
  local names = names_of(job, group, fingerprint)
  for _, kind in ipairs(failures.KINDS) do
    collect(index_additions, key.failed_by(kind, choose(kind, names[kind])), job.since, job.id)
  end
end

local function take_out(kind, name, id)
  collect(index_removals, key.failed_by(kind, name), id)
  change(kind, name)
end

-- A failed job that runs again or is deleted. Call this while its record still has the names.
function failures.remove(job)
  local fields = redis.call('HMGET', key.job(job.id), 'g', 'v')
  local names = names_of(job, fields[1], fields[2])
  for _, kind in ipairs(failures.KINDS) do
    if names[kind] then take_out(kind, names[kind], job.id) end
    if failures.is_capped(kind) then take_out(kind, failures.OTHER, job.id) end
  end
end

local function uncap(kind)
  local kinds = string.gsub(markers.other or '', kind, '')
  set_marker('other', kinds ~= '' and kinds or nil)
end

local function set_name(kind, name)
  local newest = redis.call('ZRANGE', key.failed_by(kind, name), -1, -1, 'WITHSCORES')
  if newest[1] then return redis.call('ZADD', key.failed_names(kind), newest[2], name) end
  redis.call('ZREM', key.failed_names(kind), name)
  if name == failures.OTHER and failures.is_capped(kind) then uncap(kind) end
end

-- Set the names whose jobs have changed. Their sets must have been written.
function failures.set_names()
  local entries = changed_failures
  changed_failures = {}
  for _, entry in ipairs(entries) do set_name(string.sub(entry, 1, 1), string.sub(entry, 2)) end
end

local function is_listed(kind, name, id)
  return redis.call('ZSCORE', key.failed_by(kind, name), id) and redis.call('ZSCORE', key.failed_names(kind), name)
end

-- Whether a failed job is in the sets of its record, and those are known.
function failures.is_listed(job, group, fingerprint)
  if not group or not fingerprint then return false end
  local names = names_of(job, group, fingerprint)
  for _, kind in ipairs(failures.KINDS) do
    if not is_listed(kind, names[kind], job.id) and not (failures.is_capped(kind) and is_listed(kind, failures.OTHER, job.id)) then return false end
  end
  return true
end

-- Restore the entries of a failed job from its record. A record without the names gets some.
function failures.restore(job)
  local fields = redis.call('HMGET', key.job(job.id), 'g', 'v')
  local group = fields[1] or 'error'
  local fingerprint = fields[2] or core.fingerprints.name({}, group, job.task)
  if not fields[1] or not fields[2] then redis.call('HSET', key.job(job.id), 'g', group, 'v', fingerprint) end
  failures.remove(job)
  core.flush()
  failures.add(job, group, fingerprint)
  core.flush()
end

-- Remove a job from a set that its record does not name. Returns whether the entry is now right or removed; false if the record
-- cannot be read.
function failures.repair(kind, name, id)
  local job, group, fingerprint = load_job(id, 'g', 'v')
  if not job and group ~= 'NOTFOUND' then return false end
  local own = job and job.state == 'failed' and names_of(job, group, fingerprint)[kind]
  if own == name then return true end
  if own and name == failures.OTHER and not redis.call('ZSCORE', key.failed_by(kind, own), id) then return true end
  take_out(kind, name, id)
  core.flush()
  return true
end

-- Check some entries of one set of each kind. Other code finds jobs that are missing in a set.
function failures.repair_some()
  for _, kind in ipairs(failures.KINDS) do
    local name = redis.call('ZRANDMEMBER', key.failed_names(kind))
    if name then
      local ids = redis.call('ZRANDMEMBER', key.failed_by(kind, name), SAMPLE)
      for _, id in ipairs(ids) do failures.repair(kind, name, id) end
      if #ids == 0 then set_name(kind, name) end
    end
  end
end

failures.set_name, failures.take_out = set_name, take_out
core.failures = failures
