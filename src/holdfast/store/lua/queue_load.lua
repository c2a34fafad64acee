-- queue_load: the backlog and throughput of queues, for autoscaling. See throughput.lua.
--
--   load(queues or cursor)   of the named queues, or of all, a page at a time: the cursor of the next page ('' after the last),
--                            and for each queue: name, whether it is paused, number of live workers; numbers of waiting,
--                            running, scheduled, blocked and throttled jobs; for how many milliseconds the oldest job could
--                            have been claimed (-1: none); number of due scheduled jobs; number of kinds of unfinished work
--                            that may affect it; and for the last minutes: their length in milliseconds, arrivals, ended
--                            attempts, and the milliseconds these took
--   overdue()                the number of overdue timers (see overdue.lua), and for each queue that overdue schedules,
--                            limits and deadlines affect: name, number of these
--
-- Errors: INVALID.

local PRIORITY_STEP, SLOT, SLOTS, count_by_state = core.PRIORITY_STEP, core.SLOT, core.SLOTS, core.count_by_state
local is_paused, load_job, overdue, page_of = core.is_paused, core.load_job, core.overdue, core.page_of
local queue_sets, register, statistics = core.queue_sets, core.register, core.statistics

local PRIORITIES = 512
local QUEUES_PER_PAGE = 150

-- Jobs of one priority are ordered by arrival, so the first one of each has waited longest.
local function longest_wait(queue)
  local index, since, from = key.index[queue].waiting, nil, '-inf'
  for _ = 1, PRIORITIES do
    local first = redis.call('ZRANGEBYSCORE', index, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then break end
    local job = load_job(first[1])
    if job then since = math.min(since or job.since, job.since) end
    from = string.format('%.0f', (math.floor(first[2] / PRIORITY_STEP) + 1) * PRIORITY_STEP)
  end
  return since and math.max(0, now - since) or -1
end

-- The sums of all slots, and the time since the first of them began.
local function sum_slots(queue)
  local sums, first = { i = 0, o = 0, r = 0 }, math.floor(now / SLOT)
  local min, list = first - SLOTS, redis.pcall('HGETALL', key.load(queue))
  local function add(slot, letter, count)
    if not slot or slot < min then return end
    sums[letter], first = sums[letter] + count, math.min(first, slot)
  end
  for place = 1, #list, 2 do
    local letter, slot = string.match(list[place], '^([ior])(%d+)$')
    add(tonumber(slot), letter, tonumber(list[place + 1]) or 0)
  end
  statistics.read_lines(statistics.unfolded(queue), function(slot, ended, busy)
    if ended == 0 then return end
    add(slot, 'o', ended)
    add(slot, 'r', busy)
  end)
  return math.max(now - first * SLOT, 1000), sums.i, sums.o, sums.r
end

local STATES = { 'waiting', 'running', 'scheduled', 'blocked', 'throttled' }

-- Whom unfinished work affects is unknown: it may be any queue with blocked or throttled jobs.
local function unfinished(counts)
  local resolving = markers.resolving and counts.blocked > 0 and 1 or 0
  local changed = markers.changed and counts.throttled > 0 and 1 or 0
  return resolving + changed
end

local function load_of(queue, workers)
  local row, counts, due, since, wait = { queue, is_paused(queue), workers }, count_by_state(queue), 0, nil, -1
  for _, state in ipairs(STATES) do row[#row + 1] = counts[state] end
  if counts.waiting > 0 then wait = longest_wait(queue) end
  if counts.scheduled > 0 then due, since = overdue.jobs(queue) end
  row[#row + 1] = math.max(wait, since and now - since or -1)
  row[#row + 1], row[#row + 2] = due, unfinished(counts)
  for _, number in ipairs({ sum_slots(queue) }) do row[#row + 1] = number end
  return row
end

register('load', { 'no-writes' }, function(args)
  local queues, cursor = page_of(args, QUEUES_PER_PAGE)
  local reply, count_workers = { cursor }, queue_sets.new_count()
  for place, queue in ipairs(queues) do reply[place + 1] = load_of(queue, count_workers(queue)) end
  return reply
end)

register('overdue', { 'no-writes' }, function()
  local reply = { overdue.count() }
  for queue, count in pairs(overdue.by_queue()) do reply[#reply + 1], reply[#reply + 2] = queue, count end
  return reply
end)
