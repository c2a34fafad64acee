-- limit_usage: which jobs hold the slots of a limit, and which are parked, page by page.
--
--   limit_keys(name, after, limit)            the limits of a name that have holders or parked jobs, with their keys, in order:
--                                             per limit a list of the limit, its number of holders, and of parked jobs. `after`:
--                                             the last limit of the page before. A page may be short; an empty one is the end
--   limit_holders(name, cursor, limit)        the jobs that hold slots of a limit, by id
--   limit_parked(name, cursor, limit)         the jobs that a limit has parked, by queue, then in the order in which they start
--
-- In `limit_holders` and `limit_parked`, `name` is a limit with its key, if any. Both return the cursor of the next page (empty
-- after the last one), the number of jobs, then the jobs, as `list` does.
--
-- Errors: INVALID.

local check_limit, check_queue = core.check_limit, core.check_queue
local count_parked, describe, find, limits = core.count_parked, core.describe, core.find, core.limits
local read_page, register, sorts_before = core.read_page, core.register, core.sorts_before

local MAX_COUNTED = 5000 -- queues of limits whose parked jobs one call counts

-- A full row costs about 24 microseconds.
local function page_size(args) return math.min(find.check_limit(args.limit), find.MAX_ROWS) end

-- The first limit of a name that has holders, after another.
local function next_held(name, after)
  local found = redis.call('ZRANGEBYLEX', key.holders(name), after and '(' .. after .. '!' or '-', '+', 'LIMIT', 0, 1)
  return found[1] and string.match(found[1], '^%S+')
end

-- The first limit of a name that has parked jobs, after another.
local function next_parking(name, after)
  return redis.call('ZRANGEBYLEX', key.throttling(name), after and '(' .. after or '-', '+', 'LIMIT', 0, 1)[1]
end

register('limit_keys', { 'no-writes' }, function(args)
  local size, left, reply = find.check_limit(args.limit), MAX_COUNTED, {}
  local name, after = limits.name_of(check_limit(args.name)), args.after and check_limit(args.after)
  while #reply < size and left > 0 do
    local held, parking = next_held(name, after), next_parking(name, after)
    if not held and not parking then break end
    after = (not parking or held and sorts_before(held, parking)) and held or parking
    local parked, queues = count_parked(after)
    reply[#reply + 1], left = { after, limits.count_holders(after), parked }, left - queues
  end
  return reply
end)

local function check_position(cursor)
  local queue, score, id = unpack(find.split_cursor(cursor, 3))
  find.check_position(score, id)
  return check_queue(queue), score ~= '' and score or nil, id
end

local function add_jobs(reply, ids)
  reply[2] = #ids
  for _, id in ipairs(ids) do reply[#reply + 1] = describe(id, true, true) end
  return reply
end

register('limit_holders', { 'no-writes' }, function(args)
  local size, limit = page_size(args), check_limit(args.name)
  local last = args.cursor and find.split_cursor(args.cursor, 1)[1]
  local from = last and '(' .. limit .. ' ' .. last or '[' .. limit .. ' '
  local ids = redis.call('ZRANGEBYLEX', key.holders(limits.name_of(limit)), from, '(' .. limit .. '!', 'LIMIT', 0, size)
  for place, holder in ipairs(ids) do ids[place] = string.sub(holder, #limit + 2) end
  return add_jobs({ #ids == size and ids[#ids] or '' }, ids)
end)

register('limit_parked', { 'no-writes' }, function(args)
  local size, limit, ids = page_size(args), check_limit(args.name), {}
  local queue, score, id
  if args.cursor then queue, score, id = check_position(args.cursor) end
  queue = queue or redis.call('ZRANGE', key.parking(limit), 0, 0)[1]
  while queue do
    local part = read_page(key.parked(limit, queue), size - #ids, score, id)
    for place = 1, #part, 2 do ids[#ids + 1] = part[place] end
    if #ids == size then return add_jobs({ find.join_cursor({ queue, part[#part], part[#part - 1] }) }, ids) end
    queue, score = redis.call('ZRANGEBYLEX', key.parking(limit), '(' .. queue, '+', 'LIMIT', 0, 1)[1], nil
  end
  return add_jobs({ '' }, ids)
end)
