-- settings: configuration of all queues or of one, effective from the next call.
--
-- Values that differ from their defaults are in one hash, as `name` or `queue/name`. A marker holds the digest of the hash
-- and its number of fields. Every call reads the marker, and reads the hash only when the marker has changed.

local on_first_call, set_marker = core.on_first_call, core.set_marker

local SECOND, DAY = 1000, 86400000
local SETTINGS -- name, default, min, max, unit, whether a queue may override it, description
local DEFAULT = {} -- name -> value
local config -- of this call

local MINUTE, YEAR = 60 * SECOND, 365 * DAY
local MAX_KEPT = 1000000000
local DEFAULTS_ONLY = {}

SETTINGS = {
  { 'lease', constants.DEFAULT_LEASE, constants.MIN_LEASE, constants.MAX_LEASE, 'ms', true,
    'how long an executor holds a claimed job without renewing it; workers renew after a quarter' },
  { 'grace', 0, 0, 3600 * SECOND, 'ms', true, 'extra time before an expired lease is taken back' },
  { 'retries', 3, 0, constants.MAX_RETRIES, '', true, 'retries after an error, unless the job sets its own' },
  { 'backoff', 20 * SECOND, 0, constants.MAX_BACKOFF, 'ms', true,
    'wait before the first retry, doubled for each further one, unless the job sets its own; workers add up to 10 %' },
  { 'crashes', 3, 0, constants.MAX_RETRIES, '', true, 'crashes that a job survives, unless it sets its own' },
  { 'lost', 10, 0, constants.MAX_RETRIES, '', true, 'lost leases that a job survives, unless it sets its own' },
  { 'timeout', 0, 0, constants.MAX_DURATION, 'ms', true, 'maximum duration of an attempt, unless the job sets its own; 0: no limit' },
  { 'keep_succeeded', 7 * DAY, 0, 10 * YEAR, 'ms', true, 'how long succeeded jobs are kept' },
  { 'keep_succeeded_count', 50000, 0, MAX_KEPT, '', true, 'how many succeeded jobs are kept per queue' },
  { 'keep_failed', 30 * DAY, 0, 10 * YEAR, 'ms', true, 'how long failed jobs are kept' },
  { 'keep_failed_count', 100000, 0, MAX_KEPT, '', true, 'how many failed jobs are kept per queue' },
  { 'keep_cancelled', 7 * DAY, 0, 10 * YEAR, 'ms', true, 'how long cancelled jobs are kept' },
  { 'keep_cancelled_count', 50000, 0, MAX_KEPT, '', true, 'how many cancelled jobs are kept per queue' },
  { 'concurrency', 0, 0, 1000000, '', true, 'maximum number of running jobs of a queue; 0: no limit' },
  { 'history', 100, 1, 1000, '', true, 'attempts, and notes, kept per job' },
  { 'stats_age', 30 * DAY, DAY, YEAR, 'ms', true, 'how long statistics per day and hour are kept' },
  { 'histogram_age', 7 * DAY, 0, YEAR, 'ms', true, 'how long histograms, from which quantiles are read, are kept' },
  { 'worker_age', constants.DEFAULT_WORKER_AGE, MINUTE, YEAR, 'ms', false, 'time after its last heartbeat when a worker is forgotten' },
  { 'check_rate', 20, 0, 1000, '', false,
    'how much of the store upkeep checks for consistency a second: 20 is about 10 keys; 0: nothing' },
  { 'events', 100000, 100, 10000000, '', false, 'approximate number of events that are kept' },
}

local known, known_count = {}, 0 -- digest -> config

on_first_call[#on_first_call + 1] = function()
  for _, row in ipairs(SETTINGS) do DEFAULT[row[1]] = row[2] end
end

-- The value for a queue, or the global one.
local function setting(name, queue)
  if config == DEFAULTS_ONLY then return DEFAULT[name] end
  return queue and config[queue .. '/' .. name] or config[name] or DEFAULT[name]
end

-- Where the value comes from.
local function setting_source(name, queue)
  return queue and config[queue .. '/' .. name] and 'queue' or config[name] and 'global' or 'default'
end

local function read_config(digest)
  config = DEFAULTS_ONLY
  if not digest then return end
  local is_complete = tonumber(string.match(digest, ' (%d+)$')) == redis.pcall('HLEN', key.config())
  config = is_complete and known[digest]
  if config then return end
  config = {}
  local list = redis.pcall('HGETALL', key.config()) -- of a wrong type: the defaults apply
  for place = 1, #list, 2 do config[list[place]] = tonumber(list[place + 1]) end
  if not is_complete then return end -- the hash was deleted, so its digest is stale
  if known_count >= 16 then known, known_count = {}, 0 end
  known[digest], known_count = config, known_count + 1
end

-- The digest of some settings and their number; nil if there are none, or if they cannot be read.
local function digest_config(name)
  local list, parts = redis.pcall('HGETALL', name), {}
  for place = 1, #list, 2 do parts[#parts + 1] = list[place] .. '=' .. list[place + 1] end
  if #parts == 0 then return nil end
  table.sort(parts)
  return redis.sha1hex(table.concat(parts, ' ')) .. string.format(' %d', #parts)
end

-- The settings have a copy, to restore them from; see check_meta.lua.
local function copy_config(from, to)
  local list = redis.pcall('HGETALL', from)
  redis.call('DEL', to)
  if list[1] then redis.call('HSET', to, unpack(list)) end
end

-- Call this after changing the hash.
local function store_config_digest()
  set_marker('config', digest_config(key.config()))
  copy_config(key.config(), key.config_copy())
end

core.setting, core.read_config, core.SECOND, core.DAY, core.SETTINGS = setting, read_config, SECOND, DAY, SETTINGS
core.DEFAULT, core.setting_source, core.store_config_digest = DEFAULT, setting_source, store_config_digest
core.digest_config, core.copy_config = digest_config, copy_config
