-- work_queue: items in the keys of redis-work-queue, beside programs in any language that use them, too.
--
-- The first blob is the prefix of the queue; ids and data are blobs as well, because they may be any bytes.
--
--   <prefix>:queue        list of ids to do: pushed on the left, popped on the right
--   <prefix>:processing   list of ids that somebody works on, or has left
--   <prefix>:cleaning     list of ids that a cleaner of version 0.1.5 is moving, or has left
--   <prefix>:item:<id>    string: the data; the item exists while this key does
--   <prefix>:lease:<id>, <prefix>:leased_by_session:<id>
--                         string that expires: the session that works on the item; the first name is that of the protocol's
--                         document, the second that of version 0.1.5. We set both, and respect each.
--
--   work_queue_put(fresh), blobs: id, data, id, data ...
--     1 for each item that was stored, 0 if its id exists. fresh: the ids cannot exist, so nothing is looked up
--   work_queue_claim(session, limit, lease)
--     lease items to a session: 1 if the call got no further than ids that nobody can be given, else 0; then id, data,
--     id, data ... A repeated call gets the same items again
--   work_queue_renew(sessions, lease), blobs: ids
--     1 for each lease that the session still had, and now has for `lease` milliseconds more; else 0
--   work_queue_complete(session), blob: id
--     1 if this call ended the item: its data existed, it was in processing, and no other session had a lease on it
--   work_queue_release(session), blob: id
--     1 if the item is the next in the queue again, under the same conditions
--   work_queue_lengths()
--     the lengths of queue and processing
--
-- Errors: INVALID; also if a key has the wrong type, and on a cluster, where these keys are in many slots.

local MAX_BATCH, MAX_LEASE = constants.MAX_BATCH, constants.MAX_LEASE
local check_integer, check_list, check_name, load_reply = core.check_integer, core.check_list, core.check_name, core.load_reply
local refuse, register, store_reply = core.refuse, core.register, core.store_reply

local MAX_REPLY = 33554432 -- bytes of data in one reply
-- A cleaner of version 0.1.5 that has just read an id puts it back if it has no lease, even if its item has ended meanwhile;
-- a client of 0.1.5 would then run and complete it once more. So an ended item has a lease of nobody for some seconds.
local ENDED, ENDED_FOR = 'ended', 10000
local MAX_LOOKED = 2000000 -- entries of lists that one call compares with ids
local NEAR = 1000 -- entries at each end of a queue in which copies of an id are looked for

local function shown(name)
  return (string.gsub(string.sub(name, 1, 200), '[%c\128-\255]', function(c) return string.format('\\x%02x', string.byte(c)) end))
end

local function wrong_type(name, kind, wanted)
  refuse('INVALID', string.format('the key %s is not part of a redis-work-queue: it holds a %s, not a %s; choose another '
    .. 'prefix, or delete the key', shown(name), kind, wanted))
end

local function check_type(name, wanted)
  local kind = redis.call('TYPE', name).ok
  if kind ~= 'none' and kind ~= wanted then wrong_type(name, kind, wanted) end
  return kind
end

local is_cluster -- whether this server is part of a cluster, once it is known

local function check_no_cluster()
  if is_cluster == nil then
    local info = redis.pcall('INFO', 'cluster')
    is_cluster = type(info) == 'string' and string.find(info, 'cluster_enabled:1', 1, true) ~= nil
  end
  if is_cluster then
    refuse('INVALID', 'the protocol redis-work-queue cannot be used on a cluster: its keys are in many slots; use a server of '
      .. 'its own, or items without a protocol')
  end
end

-- The keys of a queue.
local function work_queue(prefix)
  if type(prefix) ~= 'string' then refuse('INVALID', 'expected the prefix of a redis-work-queue as the first blob') end
  check_no_cluster()
  local own = { prefix = prefix, queue = prefix .. ':queue', processing = prefix .. ':processing', cleaning = prefix .. ':cleaning',
    item = prefix .. ':item:', lease = prefix .. ':lease:', session = prefix .. ':leased_by_session:' }
  for _, name in ipairs({ own.queue, own.processing }) do check_type(name, 'list') end
  own.has_cleaning = check_type(own.cleaning, 'list') ~= 'none'
  return own
end

local function check_session(value) return check_name(value, 'a session', constants.MAX_ID, '%w._:@/%-') end
local function check_lease(value) return check_integer(value, '`lease`', 1, MAX_LEASE) end

-- The data of an item, or nil. The second value is what the key holds instead of a string.
local function load_data(own, id)
  local data = redis.pcall('GET', own.item .. id)
  if type(data) == 'table' then return nil, redis.call('TYPE', own.item .. id).ok end
  return data or nil
end

-- Who has a lease on an item: a session; nil if nobody. If two sessions have one, that which is not `mine`.
local function holder_of(own, id, mine)
  local one, other = unpack(redis.call('MGET', own.lease .. id, own.session .. id))
  if not one or not other then
    -- A value of another type reads as missing.
    if not one then check_type(own.lease .. id, 'string') end
    if not other then check_type(own.session .. id, 'string') end
  end
  if one and one ~= mine then return one end
  if other == ENDED then other = nil end
  return other or one or nil
end

local function set_lease(own, id, session, lease)
  redis.call('SET', own.lease .. id, session, 'PX', lease)
  redis.call('SET', own.session .. id, session, 'PX', lease)
end

-- How many ids one call may look for in the lists, which takes time in proportion to their lengths; at least one.
local function max_searches(own)
  local entries = redis.call('LLEN', own.queue) + redis.call('LLEN', own.processing)
  return math.max(1, math.floor(MAX_LOOKED / (entries + 1)))
end

local function is_in(list, id) return redis.call('LPOS', list, id) and true or false end

-- Remove copies of an id from both ends of the queue. Only one that was added or cleaned twice has any.
local function remove_copies(own, id)
  if redis.call('LPOS', own.queue, id, 'MAXLEN', NEAR) or redis.call('LPOS', own.queue, id, 'RANK', -1, 'MAXLEN', NEAR) then
    redis.call('LREM', own.queue, 0, id)
  end
  redis.call('LREM', own.cleaning, 0, id)
end

-- Delete an item with all that refers to it.
local function end_item(own, id)
  redis.call('DEL', own.item .. id, own.lease .. id)
  redis.call('SET', own.session .. id, ENDED, 'PX', ENDED_FOR)
  redis.call('LREM', own.processing, 0, id)
  remove_copies(own, id)
end

-- Put an item at the right end of the queue, where it is the next.
local function put_back(own, id)
  redis.call('DEL', own.lease .. id, own.session .. id)
  redis.call('LREM', own.processing, 0, id)
  remove_copies(own, id)
  redis.call('RPUSH', own.queue, id)
end

-- Handle the id at the right end of the queue if nobody can be given it. Returns whether that was so.
--
-- Without data, its item has ended. With a lease, a cleaner has put it back while somebody works on it, so it belongs in
-- processing: a client of version 0.1.5 completes only what it finds there.
local function skip(own, id, data, holder)
  if data and not holder then return false end
  if not data or is_in(own.processing, id) then
    redis.call('RPOP', own.queue)
  else
    redis.call('LMOVE', own.queue, own.processing, 'RIGHT', 'LEFT')
  end
  return true
end

-- Remove ended items from the list of a cleaner that has died: another cleaner of version 0.1.5 would put them back.
local function forget_ended(own)
  for _, id in ipairs(redis.call('LRANGE', own.cleaning, 0, 9)) do
    if redis.call('EXISTS', own.item .. id) == 0 then redis.call('LREM', own.cleaning, 0, id) end
  end
end

local function load_item(own, id)
  local data, kind = load_data(own, id)
  if kind then wrong_type(own.item .. id, kind, 'string') end
  return data, holder_of(own, id)
end

-- Look at ids from the right end of the queue, and call visit(id, data) for those that can be claimed. It moves the id, and
-- returns true to go on. Returns how many ids were skipped, and whether that was all that the call could do.
local function each_claimable(own, visit)
  local skipped = 0
  if own.has_cleaning then forget_ended(own) end
  for looked = 1, MAX_BATCH do
    local id = redis.call('LINDEX', own.queue, -1)
    if not id then return skipped, false end
    local is_sound, data, holder = pcall(load_item, own, id)
    if not is_sound then
      if looked == 1 then error(data, 0) end
      return skipped, false -- the next call reports it: this one has changed something
    end
    if skip(own, id, data, holder) then
      skipped = skipped + 1
    elseif not visit(id, data) then
      return skipped, false
    end
  end
  return skipped, skipped == MAX_BATCH
end

-- The items of a claim whose reply was lost, as far as the session still has them.
local function claimed_before(own, session, ids)
  local reply = { 0 }
  for _, id in ipairs(ids) do
    local data = load_data(own, id)
    if data and holder_of(own, id, session) == session then
      reply[#reply + 1], reply[#reply + 2] = id, data
    end
  end
  return reply
end

register('work_queue_put', {}, function(args, blobs)
  local own, kinds, reply = work_queue(blobs[2]), {}, {}
  if #blobs < 4 or #blobs % 2 == 1 or #blobs > 2 + 2 * MAX_BATCH then
    refuse('INVALID', string.format('expected 1 to %d ids, each followed by its data', MAX_BATCH))
  end
  for at = 3, #blobs, 2 do
    local name = own.item .. blobs[at]
    if not args.fresh and not kinds[name] then
      check_type(name, 'string')
      kinds[name] = redis.call('EXISTS', name)
    end
  end
  for at = 3, #blobs, 2 do
    local name = own.item .. blobs[at]
    local stored = args.fresh or kinds[name] == 0
    if stored then
      kinds[name] = 1
      redis.call('SET', name, blobs[at + 1])
      redis.call('LPUSH', own.queue, blobs[at])
    end
    reply[#reply + 1] = stored and 1 or 0
  end
  return reply
end, true)

register('work_queue_claim', { 'allow-oom' }, function(args, blobs)
  local own, session, reply, ids, bytes = work_queue(blobs[2]), check_session(args.session), { 0 }, {}, 0
  local limit, lease = check_integer(args.limit, '`limit`', 1, MAX_BATCH), check_lease(args.lease)
  local before = load_reply(session)
  if before then return claimed_before(own, session, before) end
  local _, is_cut_short = each_claimable(own, function(id, data)
    bytes = bytes + #data
    if #ids > 0 and bytes > MAX_REPLY then return false end
    redis.call('LMOVE', own.queue, own.processing, 'RIGHT', 'LEFT')
    set_lease(own, id, session, lease)
    ids[#ids + 1], reply[#reply + 1], reply[#reply + 2] = id, id, data
    return #ids < limit
  end)
  if #ids > 0 then store_reply(session, ids, lease) end
  if is_cut_short then reply[1] = 1 end
  return reply
end, true)

-- A lease that has expired is renewed if nobody has touched the item since, and `left` allows to look for it.
local function renew(own, id, session, lease, left)
  local holder = holder_of(own, id, session)
  if holder and holder ~= session or redis.call('EXISTS', own.item .. id) == 0 then return 0, left end
  if not holder then
    left = left - 1
    if left < 0 or not is_in(own.processing, id) then return 0, left end
  end
  set_lease(own, id, session, lease)
  return 1, left
end

register('work_queue_renew', { 'allow-oom' }, function(args, blobs)
  local own, lease, reply = work_queue(blobs[2]), check_lease(args.lease), {}
  for _, session in ipairs(check_list(args.sessions, 'sessions')) do check_session(session) end
  if #blobs ~= #args.sessions + 2 then refuse('INVALID', 'expected as many ids as sessions') end
  local left = max_searches(own)
  for place, session in ipairs(args.sessions) do
    reply[place], left = renew(own, blobs[place + 2], session, lease, left)
  end
  return reply
end, true)

-- Whether a session may end an item now. Only its data and its place in processing prove that nobody else has ended it.
local function may_end(own, id, session)
  local holder = holder_of(own, id, session)
  if holder and holder ~= session then return false end
  check_type(own.item .. id, 'string')
  return redis.call('EXISTS', own.item .. id) == 1 and is_in(own.processing, id)
end

-- Apply a change to an item that the session may end. Returns whether it did.
local function end_by(change, args, blobs)
  local own, session, id = work_queue(blobs[2]), check_session(args.session), blobs[3]
  if not id then refuse('INVALID', 'expected the id of an item') end
  if not may_end(own, id, session) then return 0 end
  change(own, id)
  return 1
end

register('work_queue_complete', { 'allow-oom' }, function(args, blobs) return end_by(end_item, args, blobs) end, true)

register('work_queue_release', { 'allow-oom' }, function(args, blobs) return end_by(put_back, args, blobs) end, true)

register('work_queue_lengths', { 'no-writes' }, function(_, blobs)
  local own = work_queue(blobs[2])
  return { redis.call('LLEN', own.queue), redis.call('LLEN', own.processing) }
end, true)

core.check_lease, core.check_type, core.each_claimable, core.end_item = check_lease, check_type, each_claimable, end_item
core.holder_of, core.is_in, core.load_data, core.put_back = holder_of, is_in, load_data, put_back
core.max_searches, core.remove_copies, core.set_lease, core.work_queue = max_searches, remove_copies, set_lease, work_queue
