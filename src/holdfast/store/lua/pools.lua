-- pools: claim from a pool: a set of queues between which the store chooses. See queue_sets.lua.
--
-- `ready:<set>` has the queues in which a claim may find jobs, so a claim does not ask all queues, however many there are.
-- A queue is added when a job begins to wait in it, when it is resumed, and when a job of a queue with a concurrency has
-- stopped running. A claim that finds nothing to start in it removes it. Scores are the order:
--
--   strict       the place of its entry; queues of one pattern follow each other by name
--   the others   how far it has come: each job taken advances it by 1 / weight, and the one furthest behind is next. A queue
--                that was added since has -1, and starts beside the one furthest behind. An empty one is removed at its
--                turn, not before, so it saves up no turns and loses none
--
-- `fair` counts running jobs instead, of the first queues in that order.
--
-- A new pool looks at all queues once, some in each claim; so do all pools when a concurrency has been changed.

local claiming, gate, queue_sets = core.claiming, core.gate, core.queue_sets
local set_marker, wake_executor = core.set_marker, core.wake_executor
local claim_from, plan_fairly, sink = claiming.claim_from, claiming.plan_fairly, claiming.sink

local pools = {}

local MAX_VISITS = 200 -- queues that one claim asks
local PAGE = 20
local FILLED = 500 -- queues that one claim adds to a new pool
local PASSED_ON = 10 -- queues with remaining work for which a claim wakes others

-- Look at the next queues of all for a pool that has not looked at all. Returns whether there are more.
local function fill(set)
  if not markers.filling then return false end
  local last = redis.call('HGET', key.filling(), set.id)
  if not last then return false end
  local queues = redis.call('ZRANGEBYLEX', key.queues(), '(' .. last, '+', 'LIMIT', 0, FILLED)
  for _, queue in ipairs(queues) do
    if queue_sets.entry_of(set, queue) and redis.call('EXISTS', core.index_key(queue, 'waiting')) == 1 then
      redis.call('ZADD', key.ready(set.id), 'NX', queue_sets.first_place(set, queue), queue)
    end
  end
  if #queues == FILLED then
    redis.call('HSET', key.filling(), set.id, queues[#queues])
    return true
  end
  redis.call('HDEL', key.filling(), set.id)
  if redis.call('EXISTS', key.filling()) == 0 then set_marker('filling', nil) end
  return false
end

-- Whether no job of a queue can start. What changes that adds the queue again.
local function has_nothing(queue) return redis.call('ZCARD', key.index[queue].waiting) == 0 or gate.queue(queue) ~= nil end

-- Claim up to `max` jobs of a queue. Returns how many, and whether the claim is complete.
local function take(queue, args, got, max)
  local before = got.count
  local is_complete = claim_from(queue, args, got, max)
  return got.count - before, is_complete
end

local function remove(set, queues)
  if queues[1] then redis.call('ZREM', key.ready(set.id), unpack(queues)) end
end

-- Claim in the order of the scores. Returns whether the claim is complete, and whether there are more queues to ask.
local function claim_strictly(set, args, got)
  local visits, stay = 0, 0
  while visits < MAX_VISITS do
    local page, gone = math.min(PAGE, MAX_VISITS - visits), {}
    local queues = redis.call('ZRANGE', key.ready(set.id), stay, stay + page - 1)
    for _, queue in ipairs(queues) do
      local _, is_complete = take(queue, args, got, args.limit - got.count)
      if is_complete then
        remove(set, gone)
        return true, true
      end
      if has_nothing(queue) then gone[#gone + 1] = queue else stay = stay + 1 end
    end
    remove(set, gone)
    visits = visits + #queues
    if #queues < page then return false, false end
  end
  return false, true
end

-- Read the first queues: a heap of entries as `plan_fairly` takes them, the one furthest behind first; and a list of them.
local function read_positions(set, count)
  local list, heap, entries = redis.call('ZRANGE', key.ready(set.id), 0, count - 1, 'WITHSCORES'), {}, {}
  local least
  for place = 1, #list, 2 do
    local queue, position = list[place], tonumber(list[place + 1])
    local is_new = position < 0
    if is_new then
      if not least then
        least = tonumber(redis.call('ZRANGEBYSCORE', key.ready(set.id), 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) or 0
      end
      position = least
    end
    local entry = queue_sets.entry_of(set, queue)
    local weight = set.order == 'round-robin' and 1 or entry.weight
    heap[#heap + 1] = { queue = queue, place = (place + 1) / 2, weight = weight, position = position, load = position,
      running = position * weight, waiting = math.huge, planned = 0, took = 0, is_new = is_new }
    entries[#heap] = heap[#heap]
  end
  for at = math.floor(#heap / 2), 1, -1 do sink(heap, at) end
  return heap, entries
end

-- Take the planned jobs. Returns whether the claim is complete.
local function take_planned(args, got, chosen)
  for _, entry in ipairs(chosen) do
    local took, is_complete = take(entry.queue, args, got, entry.planned)
    entry.took, entry.is_asked, entry.steps = entry.took + took, true, math.max(entry.took + took, 1)
    entry.is_exhausted, entry.planned = took < entry.planned, 0
    if is_complete then return true end
  end
  return false
end

-- Store how far queues have come, and remove those that have nothing. Returns how many were removed or gave a job.
local function store_positions(set, entries)
  local moved, gone, count = {}, {}, 0
  for _, entry in ipairs(entries) do
    if entry.is_asked and entry.took == 0 and has_nothing(entry.queue) then
      gone[#gone + 1] = entry.queue
    elseif entry.steps or entry.is_new then
      moved[#moved + 1], moved[#moved + 2] = entry.position + (entry.steps or 0) / entry.weight, entry.queue
      if entry.took > 0 then count = count + 1 end
    end
  end
  remove(set, gone)
  if moved[1] then redis.call('ZADD', key.ready(set.id), unpack(moved)) end
  return count + #gone
end

-- Take jobs of the first queues until the claim is complete, or others may be further behind than these. `asked`: queue -> true.
-- Returns whether the claim is complete, how many queues were asked, and whether one of them for the first time.
local function take_in_proportion(args, got, heap, most, asked)
  local visits, is_first = 0, false
  while visits < MAX_VISITS do
    local chosen = plan_fairly(heap, args.limit - got.count, most)
    if #chosen == 0 then break end
    visits = visits + #chosen
    for _, entry in ipairs(chosen) do
      if not asked[entry.queue] then asked[entry.queue], is_first = true, true end
    end
    if take_planned(args, got, chosen) then return true, visits, is_first end
  end
  return false, visits, is_first
end

-- Claim so that each queue gets jobs in proportion to its weight.
local function claim_in_proportion(set, args, got)
  local visits, asked = 0, {}
  while visits < MAX_VISITS do
    local size = math.min(math.max(args.limit - got.count, PAGE), MAX_VISITS - visits)
    local heap, entries = read_positions(set, size)
    local most = #entries == size and entries[size].position or math.huge
    local is_complete, count, is_first = take_in_proportion(args, got, heap, most, asked)
    local changed = store_positions(set, entries)
    if is_complete then return true, true end
    if changed == 0 and not is_first then return false, false end -- there is nothing, or it cannot be read
    visits = visits + count
  end
  return false, true
end

-- Claim so that each queue has running jobs in proportion to its weight.
local function claim_fairly(set, args, got)
  local _, window = read_positions(set, MAX_VISITS)
  local heap, is_complete = {}, false
  for _, entry in ipairs(window) do
    entry.waiting = gate.is_paused(entry.queue) and 0 or redis.call('ZCARD', key.index[entry.queue].waiting)
    if entry.waiting > 0 then
      entry.running = redis.call('ZCARD', key.index[entry.queue].running)
      entry.load, heap[#heap + 1] = entry.running / entry.weight, entry
    end
  end
  for at = math.floor(#heap / 2), 1, -1 do sink(heap, at) end
  while #heap > 0 and not is_complete do
    is_complete = take_planned(args, got, plan_fairly(heap, args.limit - got.count))
  end
  local is_full = #window == MAX_VISITS -- there may be more: all of these make room for others
  for _, entry in ipairs(window) do
    if entry.waiting == 0 and not entry.is_asked then entry.is_asked = true end
    if is_full or entry.is_asked then entry.steps = entry.steps or 1 end
  end
  store_positions(set, window)
  return is_complete, is_full
end

-- Wake others for remaining work, beginning with the queues for which this executor was woken.
local function pass_on(set, hints)
  for _, queue in ipairs(hints) do
    if redis.call('ZCARD', key.index[queue].waiting) > 0 then wake_executor(queue) end
  end
  for _, queue in ipairs(redis.call('ZRANGE', key.ready(set.id), 0, PASSED_ON - 1)) do
    if redis.call('ZCARD', key.index[queue].waiting) > 0 and not wake_executor(queue) then return end
  end
end

local CLAIMS = { strict = claim_strictly, fair = claim_fairly, weighted = claim_in_proportion, ['round-robin'] = claim_in_proportion }

-- Claim from a pool; `hints` are the queues for which the executor was woken. Returns whether to claim again at once.
function pools.claim(args, got, hints)
  local set = queue_sets.of_pool(args.pool)
  queue_sets.use(set)
  local is_filling = fill(set)
  local is_complete, is_more = CLAIMS[set.order](set, args, got)
  if is_complete or is_more then pass_on(set, hints) end
  return is_filling or is_more
end

core.pools = pools
