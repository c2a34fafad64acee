-- work_queue_clean: put back the items of a redis-work-queue that nobody works on; see work_queue.lua for its keys.
--
-- A program that uses the protocol pops an id, and sets its lease a moment later; it stores data, and pushes the id a moment
-- later. So a cleaner looks twice, a second apart, and puts back what it has seen in the same place without a lease both
-- times. Each call looks at a part; `cursor` says where the next one goes on, '0' at the end.
--
--   work_queue_look(place, cursor)    the next cursor, then ids:
--     'processing'   from its right end, the oldest: ids that have no lease
--     'cleaning', 'queue'   all ids
--     'items'        ids of items that have no lease, wherever they are; a part of a SCAN
--   work_queue_requeue(place), blobs: ids that were seen in 'processing', in 'cleaning', or as one of the 'items' in no list
--     put each back at the left end of the queue if it is still there, has data and no lease, and is not in the queue; what
--     has no data is removed. Returns how many ids were handled, at least one, and how many were put back.
--
-- Errors: as in work_queue.lua.

local MAX_BATCH = constants.MAX_BATCH
local check_type, holder_of, is_in, refuse, register = core.check_type, core.holder_of, core.is_in, core.refuse, core.register
local max_searches, work_queue = core.max_searches, core.work_queue

local function check_cursor(value)
  if type(value) ~= 'string' or not string.find(value, '^%d+$') or #value > 20 then
    refuse('INVALID', '`cursor` must be a number as text, 0 at the beginning')
  end
  return value
end

-- A part of a list, as a cursor counts it from the right end.
local function look_at_list(list, cursor, wanted)
  local from = tonumber(cursor)
  local ids = redis.call('LRANGE', list, -from - MAX_BATCH, -from - 1)
  local reply = { #ids == MAX_BATCH and string.format('%.0f', from + MAX_BATCH) or '0' }
  for place = #ids, 1, -1 do
    if wanted(ids[place]) then reply[#reply + 1] = ids[place] end
  end
  return reply
end

local function look_at_items(own, cursor)
  local pattern = string.gsub(own.item, '[%[%]*?^\\]', '\\%0') .. '*'
  local found = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', MAX_BATCH)
  local reply = { found[1] }
  for _, name in ipairs(found[2]) do
    local id = string.sub(name, #own.item + 1)
    if not holder_of(own, id) then reply[#reply + 1] = id end
  end
  return reply
end

local function anything() return true end

local LOOK = {
  processing = function(own, cursor)
    return look_at_list(own.processing, cursor, function(id) return not holder_of(own, id) end)
  end,
  cleaning = function(own, cursor) return look_at_list(own.cleaning, cursor, anything) end,
  queue = function(own, cursor) return look_at_list(own.queue, cursor, anything) end,
  items = look_at_items,
}

register('work_queue_look', { 'no-writes' }, function(args, blobs)
  local look = LOOK[args.place] or refuse('INVALID', "`place` must be 'processing', 'cleaning', 'queue' or 'items'")
  return look(work_queue(blobs[2]), check_cursor(args.cursor))
end, true)

-- Whether an id stands where it was seen. An id that is left in cleaning may be in processing as well: then it counts as one
-- of those.
local STANDS = {
  processing = function(own, id) return is_in(own.processing, id) end,
  cleaning = function(own, id) return is_in(own.cleaning, id) and not is_in(own.processing, id) end,
  items = function(own, id) return not is_in(own.processing, id) and not is_in(own.cleaning, id) end,
}

local function requeue(own, id, place)
  local is_there = STANDS[place](own, id)
  if place == 'cleaning' then redis.call('LREM', own.cleaning, 0, id) end
  if not is_there or holder_of(own, id) then return 0 end
  redis.call('LREM', own.processing, 0, id)
  if redis.call('EXISTS', own.item .. id) == 0 or is_in(own.queue, id) then return 0 end
  redis.call('LPUSH', own.queue, id)
  return 1
end

register('work_queue_requeue', { 'allow-oom' }, function(args, blobs)
  local own, handled, back = work_queue(blobs[2]), 0, 0
  if not STANDS[args.place] then refuse('INVALID', "`place` must be 'processing', 'cleaning' or 'items'") end
  if #blobs < 3 or #blobs > MAX_BATCH + 2 then refuse('INVALID', string.format('expected 1 to %d ids', MAX_BATCH)) end
  local last = math.min(#blobs, 2 + max_searches(own))
  for at = 3, last do -- everything before the first change
    check_type(own.item .. blobs[at], 'string')
    holder_of(own, blobs[at])
  end
  for at = 3, last do handled, back = handled + 1, back + requeue(own, blobs[at], args.place) end
  return { handled, back }
end, true)
