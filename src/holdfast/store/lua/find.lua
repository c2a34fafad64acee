-- find: the walk through all jobs that match a filter, in bounded steps.
--
-- A walk uses one index: the one with the fewest entries among those that the filter gives. Every other filter is tested on
-- the records. A cursor is text: the letter of the index, and the last position in it. It is a position in an order, not a
-- count: jobs that come and go are neither skipped nor repeated, except that an ended job with its own time to live moves to
-- the old end once; see expiry.lua.
--
-- A call spends at most BUDGET: COST.look for each record that is read, COST.index for each index that is opened, and what
-- the caller does with a match.

local FINAL, STATES, check_integer, executors_of = core.FINAL, core.STATES, core.check_integer, core.executors_of
local expiry, failures = core.expiry, core.failures
local matches_id, matches_record = core.filters.matches_id, core.filters.matches_record
local refuse = core.refuse
local DEFAULT_PAGE, MAX_BATCH = constants.DEFAULT_PAGE, constants.MAX_BATCH

local BUDGET = 1000
local COST = { id = 0.3, merge = 1, look = 2, index = 2, row = 6, whole_row = 20, byte = 1 / 4096 } -- one unit is about 4 microseconds
local MAX_ROWS = 200 -- full rows, as many as one call may read
local CHUNK = 100 -- entries read at once, if they are tested; queues read at once
local SMALL = 100 -- queues whose indexes are counted to choose an index
local TIMED = { running = true, succeeded = true, failed = true, cancelled = true } -- indexed by the time of the change

-- Cursors: no name contains a comma.
local function join_cursor(parts) return table.concat(parts, ',') end

local function split_cursor(text, count)
  if type(text) ~= 'string' then refuse('INVALID', 'expected the cursor of an earlier page') end
  local parts = {}
  for part in string.gmatch(text .. ',', '([^,]*),') do parts[#parts + 1] = part end
  if count and #parts ~= count then refuse('INVALID', 'expected the cursor of an earlier page') end
  return parts
end

-- A position in an index: both empty (its beginning), or a score and an id.
local function check_position(score, id)
  if score == '' and id == '' then return nil, nil end
  if not string.find(score, '^%-?[%d.e+]+$') or not tonumber(score) or id == '' then refuse('INVALID', 'expected the cursor of an earlier page') end
  return score, id
end

-- Compare two ids as indexes do, by bytes. Lua's `<` depends on the locale of the server.
local function sorts_before(one, other)
  for place = 1, math.min(#one, #other) do
    local a, b = string.byte(one, place), string.byte(other, place)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- How many members of an index come before a position: by bisection, as the member itself may be gone.
local function rank_of(index, score, id)
  local low = redis.call('ZCOUNT', index, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', index, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sorts_before(redis.call('ZRANGE', index, middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end

local function decimal(number) return string.format('%.0f', number) end

-- The members of an index behind a position, with scores from `min` to `max` if given.
local function page(index, limit, score, id, min, max)
  local first, last = 0, nil
  if score then
    first = rank_of(index, score, id)
    local member = redis.call('ZRANGE', index, first, first, 'WITHSCORES')
    if member[1] == id and tonumber(member[2]) == tonumber(score) then first = first + 1 end
  end
  if min then first = math.max(first, redis.call('ZCOUNT', index, '-inf', '(' .. decimal(min))) end
  last = first + limit - 1
  if max then last = math.min(last, redis.call('ZCOUNT', index, '-inf', decimal(max)) - 1) end
  return last < first and {} or redis.call('ZRANGE', index, first, last, 'WITHSCORES')
end

local MAX_QUEUES = 10000

local function all_queues()
  if redis.call('ZCARD', key.queues()) > MAX_QUEUES then
    refuse('INVALID', string.format('there are more than %d queues: name them', MAX_QUEUES))
  end
  return redis.call('ZRANGE', key.queues(), 0, -1)
end

-- The ranges of scores in the index of a state that a query can match: a list of pairs; see expiry.lua for the first.
local function windows(query, state)
  local since, time = query.given.since, query.given['until']
  if not TIMED[state] or not (since or time) then return { {} } end
  since, time = since or 0, time or 2 ^ 52
  if state == 'running' then return { { since, time } } end
  return { { since - expiry.SET_ASIDE, math.min(time - expiry.SET_ASIDE, -1) }, { since, time } }
end

local function states_of(query) return query.given.states and query.given.states.list or STATES end

-- Whether all states of a query are indexed by the time of the change.
local function is_timed(query)
  for _, state in ipairs(states_of(query)) do
    if not TIMED[state] then return false end
  end
  return true
end

-- The number of entries of an index in the windows of a query.
local function count_index(query, queue, state)
  local index, total = key.index[queue][state], 0
  for _, window in ipairs(windows(query, state)) do
    total = total + (window[1] and redis.call('ZCOUNT', index, decimal(window[1]), decimal(window[2])) or redis.call('ZCARD', index))
  end
  return total
end

-- The indexes of all states and queues. An index is a walk: `open(query, position)` returns the first segment, `next` the one
-- after it. A segment is one sorted set or hash: `read(limit)` returns entries and scores behind `score` and `id`.

local function read_segment(segment, limit)
  return page(segment.index, limit, segment.score, segment.id, segment.min, segment.max)
end

-- The queues behind a name, or from it on: those of the query, or the next of all.
local function next_queues(query, name, from_it)
  if not query.given.queues then
    return redis.call('ZRANGEBYLEX', key.queues(), name and (from_it and '[' or '(') .. name or '-', '+', 'LIMIT', 0, CHUNK)
  end
  local list, rest, is_behind = query.given.queues.list, {}, not name
  for _, queue in ipairs(list) do
    if is_behind or (from_it and queue == name) then rest[#rest + 1] = queue end
    is_behind = is_behind or queue == name
  end
  if name and not is_behind then refuse('INVALID', 'expected the cursor of an earlier page') end
  return rest
end

local by_state = { letter = 's', parts = 4, covers = { states = true, queues = true } }

-- The segment at a place: its queue, state and window.
function by_state.segment(walk)
  local queue, state = walk.queues[walk.queue], walk.states[walk.state]
  local window = windows(walk.query, state)[walk.window]
  local segment = { read = read_segment, index = key.index[queue][state], prefix = { queue, state }, min = window[1], max = window[2], walk = walk }
  if walk.window > 1 then segment.score, segment.id = '0', '-' end -- a position of its own: behind the first window
  return segment
end

function by_state.first(walk)
  if #walk.queues == 0 or #walk.states == 0 then return nil end
  return by_state.segment(walk)
end

function by_state.open(query, position)
  local walk = { query = query, states = states_of(query), queue = 1, state = 1, window = 1 }
  walk.queues = next_queues(query, position and position[1], true)
  if not position or walk.queues[1] ~= position[1] then return by_state.first(walk) end -- the queue may be gone
  walk.state = nil
  for place, state in ipairs(walk.states) do
    if state == position[2] then walk.state = place end
  end
  local score, id = check_position(position[3], position[4])
  if not walk.state then refuse('INVALID', 'expected the cursor of an earlier page') end
  if score and tonumber(score) >= 0 then walk.window = #windows(query, position[2]) end
  local segment = by_state.segment(walk)
  if score then segment.score, segment.id = score, id end
  return segment
end

function by_state.next(segment)
  local walk = segment.walk
  walk.window = walk.window + 1
  if walk.window > #windows(walk.query, walk.states[walk.state]) then walk.window, walk.state = 1, walk.state + 1 end
  if walk.state > #walk.states then walk.state, walk.queue = 1, walk.queue + 1 end
  if walk.queue > #walk.queues then
    if walk.query.given.queues then return nil end
    walk.queues, walk.queue = next_queues(walk.query, walk.queues[#walk.queues]), 1
    return by_state.first(walk)
  end
  return by_state.segment(walk)
end

-- How many entries it has, or nil if that would take long. It stops counting at `enough`.
function by_state.size(query, enough)
  local total = 0
  if not query.given.queues and redis.call('ZCARD', key.queues()) > SMALL then return nil end
  for _, queue in ipairs(query.given.queues and query.given.queues.list or all_queues()) do
    for _, state in ipairs(states_of(query)) do total = total + count_index(query, queue, state) end
    if enough and total > enough then return total end
  end
  return total
end

-- The jobs that the executors of a worker hold: hashes, read in the order of ids.
local by_worker = { letter = 'w', parts = 3, covers = {} }

local function sorted_ids(executor)
  local ids = redis.call('HKEYS', key.held(executor))
  table.sort(ids, sorts_before)
  return ids
end

local function read_held(segment, limit)
  local part = {}
  for _, id in ipairs(sorted_ids(segment.prefix[1])) do
    if #part < 2 * limit and (not segment.id or sorts_before(segment.id, id)) then
      part[#part + 1], part[#part + 2] = id, '0'
    end
  end
  return part
end

local function sorted_executors(worker)
  local executors = executors_of(worker)
  table.sort(executors, sorts_before)
  return executors
end

function by_worker.segment(executors, place)
  if not executors[place] then return nil end
  return { read = read_held, prefix = { executors[place] }, executors = executors, place = place }
end

function by_worker.open(query, position)
  local executors, place = sorted_executors(query.given.worker), 1
  if not position then return by_worker.segment(executors, 1) end
  while executors[place] and sorts_before(executors[place], position[1]) do place = place + 1 end
  local segment = by_worker.segment(executors, place)
  local score, id = check_position(position[2], position[3])
  if segment and executors[place] == position[1] then segment.score, segment.id = score, id end
  return segment
end

function by_worker.next(segment) return by_worker.segment(segment.executors, segment.place + 1) end

function by_worker.size(query)
  if not query.given.worker then return nil end
  local total = 0
  for _, executor in ipairs(executors_of(query.given.worker)) do total = total + redis.call('HLEN', key.held(executor)) end
  return total
end

function by_worker.applies(query) return query.given.worker ~= nil end

-- Indexes that are one sorted set for each value of a filter. Jobs are looked at in its order; the record decides, as everywhere.
-- Without other filters, the size of the set is the number of jobs that match.

local function new_set(row)
  local set = { letter = row.letter, parts = 2, covers = row.covers, counts = true, is_set = true, reads = true }

  function set.applies(query) return query.given[row.filter] ~= nil and (not row.applies or row.applies(query)) end

  function set.open(query, position)
    local segment = { read = read_segment, index = row.index(query.given[row.filter]), prefix = {} }
    if row.latest then segment.max = row.latest() end
    if row.covers.since then segment.min, segment.max = query.given.since, query.given['until'] end
    if position then segment.score, segment.id = check_position(position[1], position[2]) end
    return segment
  end

  function set.next() return nil end

  function set.size(query)
    if not set.applies(query) or row.lacks_jobs and row.lacks_jobs(query) then return nil end
    local segment = set.open(query)
    if not segment.min and not segment.max then return redis.call('ZCARD', segment.index) end
    return redis.call('ZCOUNT', segment.index, decimal(segment.min or 0), decimal(segment.max or 2 ^ 52))
  end

  return set
end

-- Failed jobs, by the time they failed. A set may lack jobs if there are too many names; see failures.lua.
local function new_failed_set(letter, filter, kind)
  return new_set({
    letter = letter, filter = filter,
    index = function(name) return key.failed_by(kind, name) end,
    covers = { [filter] = true, states = true, since = true, ['until'] = true },
    applies = function(query)
      local states = query.given.states
      if kind == 't' then return states ~= nil and #states.list == 1 and states.set.failed end -- other jobs have a task, too
      return not states or states.set.failed
    end,
    lacks_jobs = function() return failures.is_capped(kind) end,
  })
end

local function new_mark_set(letter, filter, index) return new_set({ letter = letter, filter = filter, index = index, covers = { [filter] = true } }) end

-- Running jobs are among the timers by the end of their leases. The other timers that are due are looked at, too: a claim
-- processes all of them, so they are many only if nobody claims.
local stalled = new_set({
  letter = 'l', filter = 'stalled', covers = {},
  index = function() return key.timers end,
  latest = function() return now end,
  applies = function(query) return query.given.stalled end,
})

-- Besides by_state, which every query can use.
local OTHERS = {
  by_worker,
  new_failed_set('f', 'fingerprint', 'p'),
  new_failed_set('g', 'group', 'g'),
  new_failed_set('t', 'task', 't'),
  new_mark_set('m', 'tag', function(tag) return key.tag(tag) end),
  new_mark_set('p', 'scope', function(path) return key.scope(path) end),
  new_mark_set('b', 'batch', function(name) return key.batch(name) end),
  new_mark_set('d', 'waits_for', function(id) return key.dependents(id) end),
  stalled,
}

-- The index with the fewest entries, and their number, if it is known.
local function choose(query)
  local chosen, least
  for _, index in ipairs(OTHERS) do
    local size = index.size(query)
    if size and (not least or size < least) then chosen, least = index, size end
  end
  if not chosen then return by_state, nil end
  local size = by_state.size(query, least)
  if size and size < least then return by_state, size end
  return chosen, least
end

local function index_of(query, letter)
  if letter == by_state.letter then return by_state end
  for _, index in ipairs(OTHERS) do
    if index.letter == letter and index.applies(query) then return index end
  end
  refuse('INVALID', 'expected the cursor of an earlier page')
end

-- Returns the index of a walk, and the position where it begins, if it is not the beginning.
local function read_cursor(query, cursor)
  if not cursor then return choose(query), nil end
  local parts = split_cursor(cursor)
  local index = index_of(query, table.remove(parts, 1))
  if #parts ~= index.parts then refuse('INVALID', 'expected the cursor of an earlier page') end
  return index, parts
end

local function make_cursor(index, segment, score, id)
  local parts = { index.letter, unpack(segment.prefix) }
  parts[#parts + 1], parts[#parts + 2] = score or '', id or ''
  return join_cursor(parts)
end

-- Whether an index covers all that is asked of records.
local function covers(query, index)
  for _, row in ipairs(query.of_job) do
    if not index.covers[row.name] then return false end
  end
  return true
end

local function reads_records(query, index) return index.reads or not covers(query, index) end

-- Whether the size of an index is the number of jobs that match.
local function has_count(query, index) return index.counts and covers(query, index) and #query.of_id == 0 end

-- A walk in progress: what it may still spend, what it has looked at and found.
local function new_search(query, limit, spend)
  return { query = query, limit = limit, left = spend or BUDGET, looked = 0, found = 0 }
end

-- Look at one job; its record is read unless the index has answered all. `visit(id)` returns what it cost. Returns whether to
-- go on.
local function look(search, id, reads, visit)
  search.looked, search.left = search.looked + 1, search.left - COST.id
  local is_match = matches_id(search.query, id)
  if is_match and reads then
    search.left = search.left - COST.look
    is_match = matches_record(search.query, id)
  end
  if is_match then
    search.found = search.found + 1
    search.left = search.left - visit(id)
  end
  return search.left > 0 and search.found < search.limit
end

-- Visit the jobs that match, up to `limit`, from a cursor on, and spend up to `spend` (BUDGET). Returns the cursor (empty at
-- the end), and the search.
local function find(query, cursor, limit, visit, spend)
  local index, position = read_cursor(query, cursor)
  local search, segment = new_search(query, limit, spend), index.open(query, position)
  local tests = reads_records(query, index)
  while segment do
    if search.left <= 0 then return make_cursor(index, segment, segment.score, segment.id), search end
    local count = (tests or query.of_id[1]) and CHUNK or math.min(search.limit - search.found, MAX_BATCH)
    local part = segment:read(count)
    search.left = search.left - COST.index
    for at = 1, #part, 2 do
      if not look(search, part[at], tests, visit) then return make_cursor(index, segment, part[at + 1], part[at]), search end
    end
    if #part < 2 * count then segment = index.next(segment) else segment.score, segment.id = part[#part], part[#part - 1] end
  end
  return '', search
end

local function check_limit(limit) return check_integer(limit or DEFAULT_PAGE, 'the limit', 1, MAX_BATCH) end

core.all_queues, core.rank_of, core.sorts_before, core.read_page = all_queues, rank_of, sorts_before, page
core.find = {
  CHUNK = CHUNK, COST = COST, MAX_ROWS = MAX_ROWS, by_state = by_state, check_limit = check_limit, check_position = check_position,
  choose = choose, count_index = count_index, find = find, has_count = has_count, index_of = index_of, is_timed = is_timed,
  join_cursor = join_cursor, look = look, make_cursor = make_cursor, new_search = new_search, next_queues = next_queues, reads_records = reads_records,
  split_cursor = split_cursor, states_of = states_of, windows = windows,
}
