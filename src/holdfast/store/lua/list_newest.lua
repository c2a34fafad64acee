-- list_newest: how `list` returns jobs newest first, across all queues.
--
-- The jobs of a state come in reverse index order, merged across queues by score, then by id. Among the first jobs of several
-- states, the one that changed last comes first. Waiting, throttled and scheduled jobs are not indexed by the time of their
-- last change, so the order across states is approximate, and exact within a state.
--
-- An index that is one sorted set, as of a tag, is read backwards, from its last entry. What a worker holds has no order in time.
--
-- A cursor contains the letter of the index and the last position in it; for states, the last job of each state visited: state,
-- score, id, state, score, id ...

local LETTER_OF, all_queues, find = core.LETTER_OF, core.all_queues, core.find
local load_job, rank_of, refuse, sorts_before = core.load_job, core.rank_of, core.refuse, core.sorts_before

local function is_newer(one, other)
  if one.score ~= other.score then return one.score > other.score end
  return sorts_before(other.id, one.id)
end

-- Advance to the next job of an index. Returns whether there is one.
local function read_on(source)
  source.at = source.at - 2
  if source.at < 1 then
    while source.rank <= source.low do
      local below = table.remove(source.below)
      if not below then return false end
      source.low, source.rank = below[1], math.min(source.rank, below[2])
    end
    local first = math.max(source.low, source.rank - source.step)
    source.part = redis.call('ZRANGE', source.index, first, source.rank - 1, 'WITHSCORES')
    source.rank, source.at = first, #source.part - 1
    source.step = math.min(2 * source.step, find.CHUNK) -- many are read only of an index that has many of the newest
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

-- The ranks of an index that a query can match: pairs of first and last, the newest last.
local function ranks(query, index, state)
  local found = {}
  for place, window in ipairs(find.windows(query, state)) do
    found[place] = window[1] and {
      redis.call('ZCOUNT', index, '-inf', string.format('(%.0f', window[1])),
      redis.call('ZCOUNT', index, '-inf', string.format('%.0f', window[2])),
    } or { 0, math.huge }
  end
  return found
end

-- Open the indexes of each state, queue by queue, as the keys of a queue are built together.
local function open(query, queues, states, from, step)
  local heaps = {}
  for place = 1, #states do heaps[place] = {} end
  for _, queue in ipairs(queues) do
    local indexes = key.index[queue]
    for place, state in ipairs(states) do
      local index, begun = indexes[state], from[state]
      local rank = redis.call('ZCARD', index)
      if rank > 0 and begun then rank = rank_of(index, begun.text, begun.id) end
      if rank > 0 then
        local source, heap = { index = index, rank = rank, low = rank, below = ranks(query, index, state), at = 0, step = step }, heaps[place]
        if read_on(source) then heap[#heap + 1] = source end
      end
    end
  end
  return heaps
end

local function open_streams(query, queues, states, from, step)
  local streams = {}
  for place, heap in ipairs(open(query, queues, states, from, step)) do
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

local function read_cursor(parts)
  local from = {}
  if #parts < 4 or #parts % 3 ~= 1 then refuse('INVALID', 'expected the cursor of an earlier page') end
  for place = 2, #parts, 3 do
    local state, text, id = parts[place], find.check_position(parts[place + 1], parts[place + 2])
    if not LETTER_OF[state] or not text then refuse('INVALID', 'expected the cursor of an earlier page') end
    from[state] = { text = text, id = id }
  end
  return from
end

local function make_cursor(from, states)
  local cursor = { find.by_state.letter }
  for _, state in ipairs(states) do
    if from[state] then
      for _, part in ipairs({ state, from[state].text, from[state].id }) do cursor[#cursor + 1] = part end
    end
  end
  return find.join_cursor(cursor)
end

-- Merge the indexes of states and queues.
local function merge_newest(query, from, search, visit)
  local states, reads = find.states_of(query), find.reads_records(query, find.by_state)
  local queues = query.given.queues and query.given.queues.list or all_queues()
  local streams = open_streams(query, queues, states, from, math.ceil(math.min(search.limit, 100) / math.max(1, #queues)))
  local goes_on = true
  while goes_on and streams[1] do
    if streams[2] then search.left = search.left - find.COST.merge end
    local place = choose(streams)
    local stream = streams[place]
    local job = take(stream.heap)
    goes_on = find.look(search, job.id, reads, visit)
    from[stream.state], stream.since = job, nil
    if not stream.heap[1] then table.remove(streams, place) end
  end
  return goes_on and '' or make_cursor(from, states), search
end

-- Read a sorted set backwards.
local function walk_back(query, index, parts, search, visit)
  local segment = index.open(query)
  local set, low, rank = segment.index, 0, nil
  rank = segment.max and redis.call('ZCOUNT', set, '-inf', string.format('%.0f', segment.max)) or redis.call('ZCARD', set)
  if segment.min then low = redis.call('ZCOUNT', set, '-inf', string.format('(%.0f', segment.min)) end
  if parts then
    if #parts ~= 3 then refuse('INVALID', 'expected the cursor of an earlier page') end
    local score, id = find.check_position(parts[2], parts[3])
    if score then rank = math.min(rank, rank_of(set, score, id)) end
  end
  while rank > low do
    local first = math.max(low, rank - find.CHUNK)
    local part = redis.call('ZRANGE', set, first, rank - 1, 'WITHSCORES')
    search.left = search.left - find.COST.index
    for at = #part - 1, 1, -2 do
      if not find.look(search, part[at], true, visit) then return find.make_cursor(index, segment, part[at + 1], part[at]), search end
    end
    rank = first
  end
  return '', search
end

-- Visit the jobs that match a query, newest first; see `find.find`.
local function find_newest(query, cursor, limit, visit)
  local index, search = nil, find.new_search(query, limit)
  local parts = cursor and find.split_cursor(cursor)
  if parts then index = find.index_of(query, parts[1]) else index = find.choose(query) end
  if index == find.by_state then return merge_newest(query, parts and read_cursor(parts) or {}, search, visit) end
  if index.is_set then return walk_back(query, index, parts, search, visit) end
  return find.find(query, cursor, limit, visit)
end

find.find_newest = find_newest
