-- list_newest: how `list` returns jobs newest first, across all queues.
--
-- The jobs of a state come in reverse index order, merged across queues by score, then by id. Among the first jobs of several
-- states, the one that changed last comes first. Waiting, throttled and scheduled jobs are not indexed by the time of their
-- last change, so the order across states is approximate, and exact within a state.
--
-- A cursor contains the last job of each state visited: state, score, id, state, score, id ...

local STATES, all_queues, check_scope, load_job = core.STATES, core.all_queues, core.check_scope, core.load_job
local rank_of, refuse, sorts_before = core.rank_of, core.refuse, core.sorts_before

local function is_newer(one, other)
  if one.score ~= other.score then return one.score > other.score end
  return sorts_before(other.id, one.id)
end

-- Advance to the next job of an index. Returns whether there is one.
local function read_on(source)
  source.at = source.at - 2
  if source.at < 1 then
    if source.rank == 0 then return false end
    local first = math.max(0, source.rank - source.step)
    source.part = redis.call('ZRANGE', source.index, first, source.rank - 1, 'WITHSCORES')
    source.rank, source.at = first, #source.part - 1
  end
  source.id, source.text = source.part[source.at], source.part[source.at + 1]
  source.score = tonumber(source.text)
  return true
end

-- A heap of indexes, the newest job first, so that many queues cost few comparisons.
local function sink(heap, at)
  while true do
    local first = at
    for child = 2 * at, math.min(2 * at + 1, #heap) do
      if is_newer(heap[child], heap[first]) then first = child end
    end
    if first == at then return end
    heap[at], heap[first] = heap[first], heap[at]
    at = first
  end
end

-- Open the indexes of each state, queue by queue, as the keys of a queue are built together.
local function open(queues, states, from, step)
  local heaps = {}
  for place = 1, #states do heaps[place] = {} end
  for _, queue in ipairs(queues) do
    local indexes = key.index[queue]
    for place, state in ipairs(states) do
      local index, begun = indexes[state], from[state]
      local rank = redis.call('ZCARD', index)
      if rank > 0 and begun then rank = rank_of(index, begun.text, begun.id) end
      if rank > 0 then
        local source, heap = { index = index, rank = rank, at = 0, step = step }, heaps[place]
        read_on(source)
        heap[#heap + 1] = source
      end
    end
  end
  return heaps
end

local function open_streams(queues, states, from, step)
  local streams = {}
  for place, heap in ipairs(open(queues, states, from, step)) do
    for at = math.floor(#heap / 2), 1, -1 do sink(heap, at) end
    if heap[1] then streams[#streams + 1] = { state = states[place], heap = heap } end
  end
  return streams
end

local function take(heap)
  local first = { id = heap[1].id, text = heap[1].text }
  if not read_on(heap[1]) then
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  sink(heap, 1)
  return first
end

-- The stream whose first job changed last.
local function choose(streams)
  if #streams == 1 then return 1 end
  local chosen = 1
  for place, stream in ipairs(streams) do
    if not stream.since then
      local job = load_job(stream.heap[1].id)
      stream.since = job and job.since or now
    end
    if stream.since > streams[chosen].since then chosen = place end
  end
  return chosen
end

local function read_cursor(cursor)
  local from = {}
  for place = 1, #cursor, 3 do
    local state, text, id = cursor[place], cursor[place + 1], cursor[place + 2]
    if not tonumber(text) or type(id) ~= 'string' then refuse('INVALID', 'expected the cursor of an earlier page') end
    from[state] = { text = text, id = id }
  end
  return from
end

local function make_cursor(from, states)
  local cursor = {}
  for _, state in ipairs(states) do
    if from[state] then
      for _, part in ipairs({ state, from[state].text, from[state].id }) do cursor[#cursor + 1] = part end
    end
  end
  return cursor
end

-- Returns the ids of a page, and the new cursor.
local function walk_newest(args)
  local limit, from, ids = check_scope(args), read_cursor(args.cursor or {}), {}
  local queues, states = args.queues or all_queues(), args.states or STATES
  local streams = open_streams(queues, states, from, math.ceil(limit / math.max(1, #queues)))
  while #ids < limit and streams[1] do
    local place = choose(streams)
    local stream = streams[place]
    local job = take(stream.heap)
    ids[#ids + 1], from[stream.state], stream.since = job.id, job, nil
    if not stream.heap[1] then table.remove(streams, place) end
  end
  return ids, #ids == limit and make_cursor(from, states) or {}
end

core.walk_newest = walk_newest
