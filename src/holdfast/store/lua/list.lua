-- list: the jobs of some queues in some states, page by page.
--
--   args.queues   names (default: all)
--   args.states   names (default: all)
--   args.limit    up to 1,000 (100)
--   args.newest   newest first, across all queues: see list_newest.lua
--   args.cursor   end of the previous page: queue, state, score, id; with `newest`, see there
--
-- Errors: INVALID.
--
-- Returns the cursor of the next page (an empty list after the last one; a full page may be followed by an empty one), then the
-- jobs as described by `get` with `brief`, including unreadable ones. A cursor is a position in the order, not a count: jobs
-- that come and go are neither skipped nor repeated, except that one with its own time to live moves to the old end once; see
-- expiry.lua.

local LETTER_OF, STATES, check_integer = core.LETTER_OF, core.STATES, core.check_integer
local check_queue, describe, refuse, register = core.check_queue, core.describe, core.refuse, core.register
local MAX_BATCH = constants.MAX_BATCH

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

local function page(index, limit, score, id)
  local first = 0
  if score then
    first = rank_of(index, score, id)
    local member = redis.call('ZRANGE', index, first, first, 'WITHSCORES')
    if member[1] == id and tonumber(member[2]) == tonumber(score) then first = first + 1 end
  end
  return redis.call('ZRANGE', index, first, first + limit - 1, 'WITHSCORES')
end

local MAX_QUEUES = 10000

local function all_queues()
  if redis.call('ZCARD', key.queues()) > MAX_QUEUES then
    refuse('INVALID', string.format('there are more than %d queues: name them', MAX_QUEUES))
  end
  return redis.call('ZRANGE', key.queues(), 0, -1)
end

local function check_states(states)
  for _, state in ipairs(states) do
    if not LETTER_OF[state] then
      refuse('INVALID', string.format('unknown state %q; expected one of %s', tostring(state), table.concat(STATES, ', ')))
    end
  end
  return states
end

-- Walk the pairs of queue and state from the cursor, up to `limit` jobs. Returns their ids, and the new cursor.
local function walk(args, limit)
  local from_queue, from_state, score, id = unpack(args.cursor or {})
  local skipping, ids = from_queue ~= nil, {}
  for _, queue in ipairs(args.queues or all_queues()) do
    for _, state in ipairs(args.states or STATES) do
      local resumed = skipping and queue == from_queue and state == from_state
      if resumed then skipping = false end
      if not skipping then
        local part = page(key.index[queue][state], limit - #ids, resumed and score or nil, id)
        for place = 1, #part, 2 do ids[#ids + 1] = part[place] end
        if #ids == limit then return ids, { queue, state, part[#part], part[#part - 1] } end
      end
    end
  end
  return ids, {}
end

-- Returns the number of jobs to visit.
local function check_scope(args)
  check_states(args.states or {})
  for _, queue in ipairs(args.queues or {}) do check_queue(queue) end
  return check_integer(args.limit or constants.DEFAULT_PAGE, 'the limit', 1, MAX_BATCH)
end

local function check_walk(args)
  if args.cursor and (#args.cursor ~= 4 or not tonumber(args.cursor[3])) then
    refuse('INVALID', 'expected the cursor of an earlier page')
  end
  return check_scope(args)
end

register('list', { 'no-writes' }, function(args)
  local ids, cursor
  if args.newest then ids, cursor = core.walk_newest(args) else ids, cursor = walk(args, check_walk(args)) end
  local reply = { cursor }
  for place, id in ipairs(ids) do reply[place + 1] = describe(id, true, true) end
  return reply
end)

core.all_queues, core.check_states, core.walk = all_queues, check_states, walk
core.check_walk, core.check_scope, core.rank_of, core.sorts_before = check_walk, check_scope, rank_of, sorts_before
core.read_page = page
