-- queue_load: the backlog and throughput of queues, for autoscaling. See throughput.lua.
--
--   args.queues   names, possibly none (default: all)
--
-- Errors: INVALID. Returns the number of overdue timers (see overdue.lua); the queues that overdue schedules, limits and
-- deadlines affect; and for each queue: name, whether it is paused, number of live workers; numbers of waiting, running,
-- scheduled, blocked and throttled jobs; for how many milliseconds the oldest job could have been claimed (-1: none); number
-- of due scheduled jobs; number of overdue schedules, limits and deadlines; and for the last minutes: their length in
-- milliseconds, arrivals, ended attempts, and the milliseconds these took.

local PRIORITY_STEP, SLOT, SLOTS, all_queues = core.PRIORITY_STEP, core.SLOT, core.SLOTS, core.all_queues
local check_list, check_queue, count_workers = core.check_list, core.check_queue, core.count_workers
local load_job, overdue, register, statistics = core.load_job, core.overdue, core.register, core.statistics

local PRIORITIES = 512

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

-- Overdue work that affects a queue besides its own jobs. Whom unfinished work affects is unknown: it may be any queue
-- with blocked or throttled jobs.
local function other_overdue(queue, by_queue, counts)
  local resolving = markers.resolving and counts.blocked > 0 and 1 or 0
  local changed = markers.changed and counts.throttled > 0 and 1 or 0
  return (by_queue[queue] or 0) + resolving + changed
end

local function load_of(queue, workers, by_queue)
  local row = { queue, redis.call('SISMEMBER', key.paused(), queue), workers[queue] or 0 }
  local counts = {}
  for _, state in ipairs(STATES) do
    counts[state] = redis.call('ZCARD', key.index[queue][state])
    row[#row + 1] = counts[state]
  end
  local due, since = overdue.jobs(queue)
  row[#row + 1] = math.max(longest_wait(queue), since and now - since or -1)
  row[#row + 1], row[#row + 2] = due, other_overdue(queue, by_queue, counts)
  for _, number in ipairs({ sum_slots(queue) }) do row[#row + 1] = number end
  return row
end

register('load', { 'no-writes' }, function(args)
  local queues = args.queues and check_list(args.queues, 'queues', 0) or all_queues()
  for _, queue in ipairs(queues) do check_queue(queue) end
  local workers, by_queue, about = count_workers(), overdue.by_queue(), {}
  for queue in pairs(by_queue) do about[#about + 1] = queue end
  local reply = { overdue.count(), about }
  for _, queue in ipairs(queues) do reply[#reply + 1] = load_of(queue, workers, by_queue) end
  return reply
end)
