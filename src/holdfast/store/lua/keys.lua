-- keys: the name of every key. No other file builds one.
--
-- All keys of a namespace share its hash tag, so they live in one cluster slot, and a caller routes its call by naming a
-- single key (`hf:{namespace}:meta`).

local STATES = { 'scheduled', 'waiting', 'blocked', 'throttled', 'running', 'succeeded', 'failed', 'cancelled' }

local base -- 'hf:{namespace}:' of the current call

-- Hash: schema, arrivals (the last arrival number assigned), pulse, pruned, prune_after, markers (see call.lua).
function key.meta() return base .. 'meta' end

-- Hash: settings that differ from their defaults. See settings.lua.
function key.config() return base .. 'config' end

-- Hash: a copy of the settings, for when they are lost. Hash: how far upkeep has checked all keys, and what it has found. Key of
-- any type: what was found in place of another key and could not be read; it expires. See check.lua.
function key.config_copy() return base .. 'config_copy' end
function key.check() return base .. 'check' end
function key.damaged(name) return base .. 'damaged:' .. name end

-- Hash: a job's record. See record.lua.
function key.job(id) return base .. 'j:' .. id end

-- String: a payload (p), result (r), checkpoint (c), progress (f) or the marks (m) that are too long for the record.
function key.blob(letter, id) return base .. letter .. ':' .. id end

-- List: the errors of its attempts. See errors.lua.
function key.errors(id) return base .. 'e:' .. id end

-- Hash: step results, see steps.lua. Hash: output of attempts, see log.lua.
function key.steps(id) return base .. 'o:' .. id end
function key.log(id) return base .. 'g:' .. id end

-- List: history entries outside of attempts. Hash: attached fields, see fields.lua.
function key.notes(id) return base .. 'n:' .. id end
function key.fields(id) return base .. 'u:' .. id end

-- Hash: the dependencies of a job. Sorted set: its dependents, by arrival. Hash: ended jobs whose dependents are not
-- all resolved yet. See dependencies.lua.
function key.after(id) return base .. 'a:' .. id end
function key.dependents(id) return base .. 'd:' .. id end
function key.resolving() return base .. 'resolving' end

-- Sorted set: jobs that others depended on and that have been removed since, by how and when; it expires. See outcomes.lua.
function key.outcomes() return base .. 'outcomes' end

-- Hash and sorted set: how shares divide a queue. See shares.lua.
function key.fair(queue) return base .. 'fair:' .. queue end
function key.shares(queue, priority) return base .. 'shares:' .. queue .. ':' .. string.format('%d', priority) end

-- Sorted set, all scores 0: schedule names. Hash: a schedule. Set: schedules that need more times. See schedules.lua.
function key.schedules() return base .. 'schedules' end
function key.schedule(name) return base .. 'sc:' .. name end
function key.refill() return base .. 'refill' end

-- Hash: limits that are defined. See limit_definitions.lua.
function key.limits() return base .. 'limits' end

-- Set: names of limits that jobs used but nobody has defined; it expires. The others: see limits.lua.
function key.undefined() return base .. 'undefined' end
function key.holders(name) return base .. 'lh:' .. name end
function key.starts(limit) return base .. 'lr:' .. limit end
function key.parked(limit, queue) return base .. 'lp:' .. limit .. ' ' .. queue end
function key.parking(limit) return base .. 'lq:' .. limit end
function key.throttling(name) return base .. 'lt:' .. name end
function key.reviewing(name) return base .. 'lv:' .. name end
function key.changed() return base .. 'changed' end

-- Sorted sets: the jobs with a tag, by time of tagging; inside a scope, by time of enqueue; tracked jobs, and deleted ones
-- that were tracked. Catalogues, by number of jobs: all tags; the parts directly inside a scope. See marks.lua.
function key.tag(tag) return base .. 'tag:' .. tag end
function key.tags() return base .. 'tags' end
function key.scope(path) return base .. 'scope:' .. path end
function key.scopes(path) return base .. 'scopes:' .. path end
function key.tracked() return base .. 'tracked' end
function key.untracked() return base .. 'untracked' end

-- Sorted set: the members of a batch that have a record, by time of enqueue. Hash: a batch. Set: its members that have not
-- ended. Sorted sets: all batches by time of creation; those that are done, by the time of their removal. Set: those that later
-- calls end. See batches.lua.
function key.batch(name) return base .. 'batch:' .. name end
function key.batch_record(name) return base .. 'b:' .. name end
function key.open_members(name) return base .. 'bo:' .. name end
function key.batches() return base .. 'batches' end
function key.batches_done() return base .. 'batches_done' end
function key.batches_ending() return base .. 'batches_ending' end

-- String: the owner of a unique key. See unique_keys.lua.
function key.unique(name) return base .. 'k:' .. name end

-- String: the reply to the call with this token; it expires. See call.lua.
function key.answer(token) return base .. 't:' .. token end

-- Sorted set: the jobs of a queue in a state. Waiting: in claim order; scheduled: by due time; running: by claim time;
-- final states: by the time they ended; see expiry.lua for those that their queue would no longer keep.
function key.index(queue, state) return base .. 'q:' .. queue .. ':' .. state end

-- Sorted set: scheduled jobs by due time, running jobs by lease expiry, and the timers of limits, of their
-- expiry, of schedules and deadlines.
function key.timers() return base .. 'timers' end

-- Sorted set: ended jobs with a time to live of their own, by the time of their removal. See expiry.lua.
function key.expiring() return base .. 'expiring' end

-- Sorted set: failed jobs of a group (kind g), a fingerprint (p) or a task (t), by the time they failed. Sorted set: the
-- names of a kind that have jobs, by the time of their last one. See failures.lua.
function key.failed_by(kind, name) return base .. 'f' .. kind .. ':' .. name end
function key.failed_names(kind) return base .. 'failed:' .. kind end

-- Hash: a fingerprint; it expires. Sorted set: fingerprints, by when their example was taken. See fingerprints.lua.
function key.fingerprint(fingerprint) return base .. 'fi:' .. fingerprint end
function key.fingerprints() return base .. 'fingerprints' end

-- Sorted set, all scores 0: all queue names. Set: paused queues.
function key.queues() return base .. 'queues' end
function key.paused() return base .. 'paused' end

-- Hash: job -> hold, for each job that an executor holds. See lease.lua.
function key.held(executor) return base .. 'x:' .. executor end

-- Sorted set: workers by last heartbeat. Hash: `about`, `queues`, `set`, and one field per executor.
function key.workers() return base .. 'workers' end
function key.worker(worker) return base .. 'w:' .. worker end

-- Hash: arrivals and finished attempts of a queue per time slot. See throughput.lua.
function key.load(queue) return base .. 'load:' .. queue end

-- String: statistics of a queue that are not folded yet, see statistics.lua. Hashes: per day, hour and minute, see folding.lua.
function key.unfolded(queue) return base .. 'sl:' .. queue end
function key.stats_day(queue, day) return base .. 'sd:' .. string.format('%d', day) .. ':' .. queue end
function key.stats_histogram(queue, day) return base .. 'sg:' .. string.format('%d', day) .. ':' .. queue end
function key.stats_hours(queue, day) return base .. 'sh:' .. string.format('%d', day) .. ':' .. queue end
function key.stats_minutes(queue, hour) return base .. 'sm:' .. string.format('%d', hour) .. ':' .. queue end

-- Hash: items of a redis-work-queue that are jobs of this queue, and these jobs. See work_queue_bridge.lua.
function key.bridged(queue) return base .. 'bridged:' .. queue end

-- Sorted set: ids of the sets of queues that are served, by last use. String: the text of a set. Sorted sets: its live
-- workers, by last heartbeat; its idle executors, by when they became idle; its queues with jobs to claim, in their order.
-- Hash: the last queue at which a set has looked, of those that have not looked at all. See queue_sets.lua, pools.lua.
function key.sets() return base .. 'sets' end
function key.set(id) return base .. 'set:' .. id end
function key.live(set) return base .. 'live:' .. set end
function key.idle(set) return base .. 'idle:' .. set end
function key.ready(set) return base .. 'ready:' .. set end
function key.filling() return base .. 'filling' end

-- Hash: an operation. Sorted sets: operations by the time of their start; running ones by when upkeep continues them. Set:
-- jobs on which an operation acted in the millisecond of its start. See operations.lua.
function key.operation(id) return base .. 'op:' .. id end
function key.operations() return base .. 'operations' end
function key.operating() return base .. 'operating' end
function key.acted(operation) return base .. 'acted:' .. operation end

-- List: wake-ups for one executor.
function key.wake(executor) return base .. 'wake:' .. executor end

-- List: messages to a worker's supervisor, or ended jobs for a program that waits for results.
function key.inbox(name) return base .. 'inbox:' .. name end

-- Sorted set, all scores 0: names of subscriptions. Hash: a subscription. See subscriptions.lua.
function key.subscriptions() return base .. 'subscriptions' end
function key.subscription(name) return base .. 'on:' .. name end

-- Any type: keys of the app's own Lua, which the library neither reads nor writes. See extension.lua.
function key.own(name) return base .. 'own:' .. name end

-- Hash: digest of a function library -> when it was last called, and since when this is its answer. See libraries.lua.
function key.libraries() return base .. 'libraries' end

-- Stream: events. See emit.lua.
function key.events() return base .. 'events' end

-- Keys that most calls use are built once per namespace, and are values instead of functions: key.meta, key.timers,
-- key.events and key.index[queue][state]. The key of the last executor is cached.
local make = { meta = key.meta, timers = key.timers, events = key.events, index = key.index, held = key.held }
local MAX_QUEUES = 1000
local routing -- the key that the last call was routed by
local held_by, held

local of_queue = { __index = function(keys, state)
  local name = make.index(keys.queue, state)
  keys[state] = name
  return name
end }

local function new_indexes()
  local count = 0
  key.index = setmetatable({}, { __index = function(indexes, queue)
    local keys = setmetatable({ queue = queue }, of_queue)
    count = count + 1
    if count > MAX_QUEUES then new_indexes() else indexes[queue] = keys end
    return keys
  end })
end

key.held = function(executor)
  if executor ~= held_by then held_by, held = executor, make.held(executor) end
  return held
end

local function use_namespace(text)
  if text == routing then return end
  base, routing, held_by = string.sub(text, 1, -5), text, nil
  key.meta, key.timers, key.events = make.meta(), make.timers(), make.events()
  new_indexes()
end

-- The pattern of all keys of the namespace, for SCAN.
local function key_pattern() return (string.gsub(base, '[%[%]*?^\\]', '\\%0')) .. '*' end

-- A key's family, and what follows its first colon: nil if there is none. Both are nil for a key of another namespace.
local function parse_key(name)
  if string.sub(name, 1, #base) ~= base then return nil end
  local family, colon, rest = string.match(name, '^([^:]*)(:?)(.*)$', #base + 1)
  return family, colon == ':' and rest or nil
end

-- A key of the namespace by its name without the common beginning, and the other way round.
local function full_key(name) return base .. name end
local function short_key(name) return string.sub(name, #base + 1) end

core.key_pattern, core.parse_key, core.full_key, core.short_key = key_pattern, parse_key, full_key, short_key
core.STATES, core.use_namespace, core.index_key = STATES, use_namespace, make.index
