-- keys: the name of every key. Nothing else builds one.
--
-- All keys of a namespace share its hash tag, so they live in one slot of a cluster, and one key that a caller
-- names (`hf:{namespace}:meta`) is enough to route a call.

local STATES = { 'scheduled', 'waiting', 'blocked', 'throttled', 'running', 'succeeded', 'failed', 'cancelled' }

local base -- 'hf:{namespace}:', as the last call named it

-- Hash: schema, arrivals (the last arrival number given), pulse, pruned, prune_after, queues (how many were new, or forgotten,
-- so far); signs (see call.lua).
function key.meta() return base .. 'meta' end

-- Hash: settings that differ from their defaults. See settings.lua.
function key.config() return base .. 'config' end

-- Hash: a job's record. See record.lua.
function key.job(id) return base .. 'j:' .. id end

-- String: a payload (p), result (r), checkpoint (c) or progress (f) that is too long for the record.
function key.blob(letter, id) return base .. letter .. ':' .. id end

-- Hash: attempt number -> description of its error, as the executor wrote it.
function key.errors(id) return base .. 'e:' .. id end

-- Hash: results of a job's steps; see once.lua. Hash: what its attempts print; see log.lua.
function key.steps(id) return base .. 'o:' .. id end
function key.log(id) return base .. 'g:' .. id end

-- List: what happened to a job outside of its attempts. Hash: fields that other programs attached to it.
function key.notes(id) return base .. 'n:' .. id end
function key.fields(id) return base .. 'u:' .. id end

-- Hash: the jobs that a job waits for. Sorted set: those that wait for it, by arrival. Hash: ended jobs of which some that wait
-- are not told yet. See dependencies.lua.
function key.after(id) return base .. 'a:' .. id end
function key.dependents(id) return base .. 'd:' .. id end
function key.resolving() return base .. 'resolving' end

-- Hash, and sorted set: how the keys of a queue share it. See shares.lua.
function key.fair(queue) return base .. 'fair:' .. queue end
function key.shares(queue, priority) return base .. 'shares:' .. queue .. ':' .. string.format('%d', priority) end

-- Sorted set, all scores 0: the names of schedules. Hash: one of them. Set: those whose times run out. See schedules.lua.
function key.schedules() return base .. 'schedules' end
function key.schedule(name) return base .. 'sc:' .. name end
function key.refill() return base .. 'refill' end

-- See limits.lua.
function key.limits() return base .. 'limits' end

-- Set: names of limits that jobs took part in and nobody has defined; it expires. See limits.lua.
function key.undefined() return base .. 'undefined' end
function key.holders(full) return base .. 'lh:' .. full end
function key.starts(full) return base .. 'lr:' .. full end
function key.parked(full, queue) return base .. 'lp:' .. full .. ' ' .. queue end
function key.parking(full) return base .. 'lq:' .. full end
function key.throttling(name) return base .. 'lt:' .. name end
function key.reviewing(name) return base .. 'lv:' .. name end
function key.changed() return base .. 'changed' end

-- String: the job that has a unique key, and for how long. See unique_keys.lua.
function key.unique(name) return base .. 'k:' .. name end

-- String: what a call with this token was answered; it expires. See call.lua.
function key.answer(token) return base .. 't:' .. token end

-- Sorted set: the jobs of a queue in a state. Waiting: by order of claiming; scheduled: by due time; running: by time
-- of claiming; final: by time of ending.
function key.index(queue, state) return base .. 'q:' .. queue .. ':' .. state end

-- Sorted set: scheduled jobs by due time, running jobs by end of lease.
function key.timers() return base .. 'timers' end

-- Sorted set, all scores 0: the names of all queues. Set: those that are paused.
function key.queues() return base .. 'queues' end
function key.paused() return base .. 'paused' end

-- Hash: job -> marks, the jobs that an executor holds. See lease.lua.
function key.held(executor) return base .. 'x:' .. executor end

-- Sorted set: workers by the time of their last sign of life. Hash: `about`, `queues`, and a field per executor.
function key.workers() return base .. 'workers' end
function key.worker(worker) return base .. 'w:' .. worker end

-- Hash: what came to a queue and what was done, by time. See load.lua.
function key.load(queue) return base .. 'load:' .. queue end

-- Set: the workers that serve patterns of names, and are told of new queues.
function key.matchers() return base .. 'matchers' end

-- Sorted set: executors that found nothing in a queue, by when. List: the wake-up call of one of them.
function key.idle(queue) return base .. 'idle:' .. queue end
function key.wake(executor) return base .. 'wake:' .. executor end

-- List: messages to a worker's supervisor, or ended jobs for a program that waits for results.
function key.inbox(name) return base .. 'inbox:' .. name end

-- Stream: what happened.
function key.events() return base .. 'events' end

-- Keys that most calls use are made once, and are not functions to others: key.meta, key.timers, key.events, and
-- key.index[queue][state]. Of the keys of executors the last one is kept.
local make = { meta = key.meta, timers = key.timers, events = key.events, index = key.index, held = key.held }
local MAX_QUEUES = 1000
local routing -- what the last call named
local held_by, held

local function new_indexes()
  local count = 0
  key.index = setmetatable({}, { __index = function(indexes, queue)
    local keys = {}
    for _, state in ipairs(STATES) do keys[state] = make.index(queue, state) end
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

core.STATES, core.use_namespace = STATES, use_namespace
