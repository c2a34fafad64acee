-- move: the only place where a job changes its state.
--
-- Each job's record is written at once; changes of the indexes are collected and made by `settle`, one command per
-- index whatever the number of jobs. Whoever reads an index after moving jobs settles first.

local collect = core.collect
local AFTER, EXTRA, has, pack_new, pack_status = core.AFTER, core.EXTRA, core.has, core.pack_new, core.pack_status

-- Count for the load of a queue: see tally.lua.
local function tally(queue, letter, count, other, more)
  local counts = tallied[queue]
  if not counts then
    counts = { [letter] = 0 }
    tallied[queue], tallied[#tallied + 1] = counts, queue
  end
  counts[letter] = (counts[letter] or 0) + count
  if other then counts[other] = (counts[other] or 0) + more end
end

-- Have `settle` wake somebody for the work of a queue.
local function awaken(queue)
  if not awakened[queue] then awakened[queue], awakened[#awakened + 1] = true, queue end
end

-- Nothing is left of what calls collect if they end well. So the tables are made anew only after others.
local function begin_batch(ended_well)
  if not ended_well or #leaving + #entering + #holding + #dropping + #resolved + #awakened + #tallied + #happened > 0 then
    leaving, entering, holding, dropping = {}, {}, {}, {}
    resolved, awakened, tallied, happened, budget = {}, {}, {}, {}, {}
  end
  familiar = {}
  budget.handed = 1000
  budget.looked = 1000
  budget.told = 1000
  budget.fired = 200
  budget.unreadable, budget.has_failed, budget.compared = 0, false, nil
end

local function apply(command, batch)
  for place = 1, #batch do
    local where = batch[place]
    local list = batch[where]
    -- In parts: `unpack` of thousands fails half-way. The parts are even, so pairs stay together.
    for first = 1, #list, 2000 do
      redis.call(command, where, unpack(list, first, math.min(first + 1999, #list)))
    end
    batch[place], batch[where] = nil, nil
  end
end

local function make_changes()
  apply('ZREM', leaving)
  apply('ZADD', entering)
  apply('HDEL', dropping)
  apply('HSET', holding)
end

-- Make the changes that were collected, then those that follow from them: jobs that wait for one that ended. Such a job may
-- have begun to wait in this very call: it has to stand in its index before it leaves it.
local function settle()
  make_changes()
  if #resolved > 0 then
    core.resolve_all()
    make_changes()
  end
  core.keep_tally()
  for place = 1, #awakened do
    local queue = awakened[place]
    awakened[place], awakened[queue] = nil, nil
    core.wake(queue)
  end
end

-- As above, of a batch of which some may have been applied; what fails for one key stops no other.
local function apply_rest(command, batch)
  for where, list in pairs(batch) do
    if type(where) == 'string' then pcall(apply, command, { where, [where] = list }) end
  end
end

-- Something failed: make the changes of the jobs that were written, so that they are whole, and leave the rest to later calls.
local function settle_after_failure()
  apply_rest('ZREM', leaving)
  apply_rest('ZADD', entering)
  apply_rest('HDEL', dropping)
  apply_rest('HSET', holding)
  for place = (resolved.taken_up or 0) + 1, #resolved do pcall(core.after.note_rest, unpack(resolved[place])) end
  leaving, entering, holding, dropping, resolved, awakened, tallied = {}, {}, {}, {}, {}, {}, {}
end

-- Put a job into a state, with its place in that state's index, its timer (or none), and fields of its record.
local function move(job, state, score, timer, ...)
  local id, index, before = job.id, key.index[job.queue], job.state
  job.state, job.since = state, now
  redis.call('HSET', key.job(id), 's', pack_status(job), ...) -- first: what is collected must not be ahead of the record
  if before then
    collect(leaving, index[before], id)
    if not timer and (before == 'scheduled' or before == 'running') then collect(leaving, key.timers, id) end
  end
  collect(entering, index[state], score, id)
  if timer then collect(entering, key.timers, timer, id) end
end

-- Waiting jobs stand by priority, then by arrival: exact in a double up to 2^44 arrivals. Most are new, and have nothing to do
-- with others: they need no more than this.
local PRIORITY_STEP = 2 ^ 44
local function begin_waiting(id, queue, priority, arrival, ...)
  redis.call('HSET', key.job(id), 's', pack_new('waiting', arrival), ...)
  collect(entering, key.index[queue].waiting, priority * PRIORITY_STEP + arrival, id)
  tally(queue, 'i', 1)
end

local function to_waiting(job, fields)
  if job.state ~= 'waiting' and job.state ~= 'throttled' then tally(job.queue, 'i', 1) end
  move(job, 'waiting', job.priority * PRIORITY_STEP + job.arrival, nil, unpack(fields or {}))
end

local function to_scheduled(job, due, fields) move(job, 'scheduled', due, due, unpack(fields or {})) end

-- Remove a job, what belongs to it, and up to two more keys. Its index is settled with the others.
local function erase(job, ...)
  local id, flags = job.id, job.flags
  if flags > 0 and has(flags, EXTRA) then
    redis.call('DEL', key.errors(id), key.notes(id), key.fields(id), key.steps(id), key.log(id), key.blob('c', id), key.blob('f', id))
  end
  if flags > 0 and has(flags, AFTER) then redis.call('DEL', key.after(id)) end
  redis.call('DEL', key.job(id), ...)
  if not job.state then return end -- it stands nowhere
  collect(leaving, key.index[job.queue][job.state], id)
  if job.state == 'scheduled' or job.state == 'running' then collect(leaving, key.timers, id) end
end

core.begin_batch, core.tally, core.awaken, core.settle, core.move = begin_batch, tally, awaken, settle, move
core.PRIORITY_STEP, core.begin_waiting, core.to_waiting = PRIORITY_STEP, begin_waiting, to_waiting
core.to_scheduled, core.erase, core.settle_after_failure = to_scheduled, erase, settle_after_failure
