-- events: the events after a known one, in order; the latest ones; or those before a known one, the latest first.
--
--   args.after   position of the last known event: its id; `=` and the id of the next one; `0-0`: before the first event
--                ever; `start`: before the first that is kept (default: the latest events)
--   args.before  instead of it: the id of an event; or `end`: the latest, with all others before them
--   args.limit   up to 1,000 events to look at (100); fewer if they are long
--   args.types   only events of these types (default: all)
--
-- Errors: INVALID. Returns the key of the stream, for XREAD; 1 if there are more; the id of the first event after a gap, or an
-- empty text; the id of the last event that was looked at, or an empty text; then each event: id, type, ids of jobs or names,
-- who, queues, more (see emit.lua). There is a gap if events after the known one are no longer kept, or may not be.

local check_integer, check_list, refuse, register = core.check_integer, core.check_list, core.refuse, core.register
local MAX_BATCH = constants.MAX_BATCH

local CHUNK, MAX_BYTES = 50, 262144 -- events read at once; bytes looked at, and up to a chunk more

local function check_position(after)
  local exact, id = string.match(tostring(after), '^(=?)(%d+%-%d+)$')
  if after == 'start' then return '-' end
  if not id or #id > 41 then refuse('INVALID', 'expected the id of an event as `after`') end
  return id, exact == '='
end

-- Add an event to the reply if it has one of the types. Returns its size in bytes.
local function add_row(reply, entry, types)
  local fields, bytes = entry[2], 0
  local row = { entry[1] }
  for place = 2, #fields, 2 do
    row[#row + 1] = fields[place]
    bytes = bytes + #fields[place]
  end
  if not types or types[row[2]] then reply[#reply + 1] = row end
  reply[4] = entry[1]
  return bytes
end

-- Whether events between a position and the first event after it may be missing. Where the event of the position itself is
-- gone, nobody knows what else is.
local function is_gap(from, first)
  if from ~= '0-0' then return from ~= '-' and from ~= first end
  local info, about = redis.call('XINFO', 'STREAM', key.events), {}
  for place = 1, #info, 2 do about[info[place]] = info[place + 1] end
  return about['entries-added'] > about['length']
end

-- Add the events after a position to the reply.
local function read_on(reply, after, limit, types)
  local from, is_next = check_position(after)
  local first = redis.call('XRANGE', key.events, from, '+', 'COUNT', 1)[1]
  if not first then return end
  if is_gap(from, first[1]) then reply[3] = first[1] end
  if first[1] == from and not is_next then from = '(' .. from end
  local count, bytes = 0, 0
  repeat
    local chunk = redis.call('XRANGE', key.events, from, '+', 'COUNT', math.min(CHUNK, limit - count))
    for _, entry in ipairs(chunk) do bytes = bytes + add_row(reply, entry, types) end
    if #chunk == 0 then return end
    count, from = count + #chunk, '(' .. chunk[#chunk][1]
  until count == limit or bytes >= MAX_BYTES
  reply[2] = 1
end

-- Add the events before a position to the reply, the latest first.
local function read_back(reply, before, limit, types)
  if before ~= 'end' and not (string.match(tostring(before), '^%d+%-%d+$') and #before <= 41) then
    refuse('INVALID', 'expected the id of an event, or `end`, as `before`')
  end
  local to, count, bytes = before == 'end' and '+' or '(' .. before, 0, 0
  repeat
    local chunk = redis.call('XREVRANGE', key.events, to, '-', 'COUNT', math.min(CHUNK, limit - count))
    for _, entry in ipairs(chunk) do bytes = bytes + add_row(reply, entry, types) end
    if #chunk == 0 then return end
    count, to = count + #chunk, '(' .. chunk[#chunk][1]
  until count == limit or bytes >= MAX_BYTES
  reply[2] = 1
end

local function read_latest(reply, limit, types)
  local list = redis.call('XREVRANGE', key.events, '+', '-', 'COUNT', limit)
  for place = #list, 1, -1 do add_row(reply, list[place], types) end
end

local function check_types(list)
  local types = {}
  for _, name in ipairs(check_list(list, 'types')) do types[name] = true end
  return types
end

register('events', { 'no-writes' }, function(args)
  local limit = check_integer(args.limit or constants.DEFAULT_PAGE, 'the limit', 1, MAX_BATCH)
  local types, reply = args.types and check_types(args.types), { key.events, 0, '', '' }
  if args.after and args.before then refuse('INVALID', '`after` and `before` exclude each other') end
  if args.before then
    read_back(reply, args.before, limit, types)
  elseif args.after then
    read_on(reply, args.after, limit, types)
  else
    read_latest(reply, limit, types)
  end
  return reply
end)
