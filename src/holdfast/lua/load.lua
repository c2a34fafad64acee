-- load: how much work a queue has, and how fast it comes and goes. See tally.lua.
--
--   args.queues   names; not given: all
--
-- Returns for each: name, whether paused, how many live workers serve it; how many jobs are waiting, running, scheduled, blocked
-- and throttled; milliseconds since the one that waits longest could be claimed (-1: none waits); and of the last minutes:
-- how many milliseconds these are, how many jobs came, how many attempts ended, and how many milliseconds these took.

local list_of, queue_name, verb = core.list_of, core.queue_name, core.verb
local load_job = core.load_job
local PRIORITY_STEP = core.PRIORITY_STEP
local SLOT, SLOTS = core.SLOT, core.SLOTS
local all_queues, count_listeners = core.all_queues, core.count_listeners

local MOST_PRIORITIES = 512

-- Jobs of a priority stand by arrival: the first one of each has waited longest.
local function longest_wait(queue)
  local index, since, from = key.index[queue].waiting, nil, '-inf'
  for _ = 1, MOST_PRIORITIES do
    local first = redis.call('ZRANGEBYSCORE', index, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then break end
    local job = load_job(first[1])
    since = math.min(since or job.since, job.since)
    from = string.format('%.0f', (math.floor(first[2] / PRIORITY_STEP) + 1) * PRIORITY_STEP)
  end
  return since and math.max(0, now - since) or -1
end

-- The sums of the slots, and the time since the first of them began.
local function sum_up(queue)
  local sums, first = { i = 0, o = 0, r = 0 }, math.floor(now / SLOT)
  local least, list = first - SLOTS, redis.call('HGETALL', key.load(queue))
  for place = 1, #list, 2 do
    local letter, slot = string.sub(list[place], 1, 1), tonumber(string.sub(list[place], 2))
    if slot >= least then
      sums[letter] = sums[letter] + tonumber(list[place + 1])
      first = math.min(first, slot)
    end
  end
  return math.max(now - first * SLOT, 1000), sums.i, sums.o, sums.r
end

verb('load', { 'no-writes' }, function(args)
  local reply, listeners = {}, count_listeners()
  for place, queue in ipairs(args.queues and list_of(args.queues, 'queues') or all_queues()) do
    local row = { queue_name(queue), redis.call('SISMEMBER', key.paused(), queue), listeners[queue] or 0 }
    for _, state in ipairs({ 'waiting', 'running', 'scheduled', 'blocked', 'throttled' }) do
      row[#row + 1] = redis.call('ZCARD', key.index[queue][state])
    end
    row[#row + 1] = longest_wait(queue)
    for _, number in ipairs({ sum_up(queue) }) do row[#row + 1] = number end
    reply[place] = row
  end
  return reply
end)
