-- queue_sets: the sets of queues that workers and executors serve.
--
-- Whoever serves the same queues shares one set: `live:<set>` has its workers by last heartbeat, `idle:<set>` its idle
-- executors. So a heartbeat, and an executor that becomes idle, write one key however many queues they serve, and a queue
-- finds its workers and executors in the few sets that name it. A set of one queue has the queue's name. Any other is
-- registered: `sets` has its id by last use, `set:<id>` its text, from which the id is made. A marker holds a digest of
-- all ids; what was read of the texts is cached by it.
--
-- The text is an order and entries, separated by spaces: the name of a queue, a pattern with `*`, or `!` and a queue or
-- pattern to exclude; `=` and its weight may follow. A queue that is named belongs to that entry, any other to the first
-- pattern that matches. A set with an order (strict, round-robin, weighted, fair) is a *pool*: the store chooses between
-- its queues, and keeps those with claimable jobs in `ready:<set>`, see pools.lua. The order of other sets is `-`; they may
-- be several lists of entries with `|` between them, as a worker has several pools, each with its own exclusions.

local refuse, set_marker, setting = core.refuse, core.set_marker, core.setting
local MAX_BATCH, MAX_NAME = constants.MAX_BATCH, constants.MAX_NAME
local HEARTBEAT_TIMEOUT = constants.HEARTBEAT_TIMEOUT

local queue_sets = {}

local MAX_SETS = 1000
local MAX_CACHED = 2000 -- queues whose sets are known, and texts whose ids are known
local MAX_REGISTRIES = 64 -- about as many namespaces of a server
local MAX_WEIGHT = 1000000
local TOUCH_INTERVAL, UNUSED_AGE = 60000, 600000 -- milliseconds
local PRUNED = 20 -- unused sets that one call removes
local ORDERS = { ['-'] = true, strict = true, ['round-robin'] = true, weighted = true, fair = true }
local SEPARATOR = '|'
local NONE = {}

-- Reading the text of a set

-- The parts of an entry between its wildcards.
local function split(entry)
  local parts = {}
  for part in string.gmatch(entry .. '*', '([^*]*)%*') do parts[#parts + 1] = part end
  return parts
end

-- Whether a name has these parts in their order, the first at its start and the last at its end. Each is looked for once, at
-- the first place where it can be: a Lua pattern would try all places of all parts, which can take minutes.
local function fits(name, parts)
  local first, last = parts[1], parts[#parts]
  if #parts == 1 then return name == first end
  local from, to = #first + 1, #name - #last
  if to < #first or string.sub(name, 1, #first) ~= first or string.sub(name, to + 1) ~= last then return false end
  for place = 2, #parts - 1 do
    local _, found = string.find(name, parts[place], from, true)
    if not found or found > to then return false end
    from = found + 1
  end
  return true
end

local function check_entry(entry)
  local name = type(entry) == 'string' and string.match(entry, '^!?(.*)$') or ''
  if #name < 1 or #name > MAX_NAME or not string.find(name, '^[%w_.*%-]+$') then
    refuse('INVALID', string.format('expected a queue, a pattern or an exclusion, got %q', string.sub(tostring(entry), 1, 40)))
  end
end

-- Check entries and separators.
function queue_sets.check_entries(entries)
  for _, entry in ipairs(entries) do
    if entry ~= SEPARATOR then check_entry(entry) end
  end
end

local function parse_weight(word)
  local entry, weight = string.match(word, '^(.-)=(%d+)$')
  if not entry then return word, 1 end
  if tonumber(weight) < 1 or tonumber(weight) > MAX_WEIGHT then
    refuse('INVALID', string.format('the weight of %s must be from 1 to %d', string.sub(entry, 1, 40), MAX_WEIGHT))
  end
  return entry, tonumber(weight)
end

local function add_entry(set, list, word)
  local entry, weight = parse_weight(word)
  check_entry(entry)
  set.size = set.size + 1
  if string.sub(entry, 1, 1) == '!' then
    list.excluded[#list.excluded + 1] = split(string.sub(entry, 2))
  elseif string.find(entry, '*', 1, true) then
    list.patterns[#list.patterns + 1] = { parts = split(entry), place = set.size, weight = weight }
    set.has_patterns = true
  elseif not set.named[entry] then
    set.named[entry], set.names[#set.names + 1] = { place = set.size, weight = weight }, entry
  end
end

local function add_list(set)
  local list = { patterns = {}, excluded = {} }
  set.lists[#set.lists + 1] = list
  return list
end

-- Refuses a text that is not one of a set.
local function parse(id, text)
  local set = { id = id, text = text, named = {}, names = {}, lists = {}, size = 0 }
  local list = add_list(set)
  for word in string.gmatch(text, '%S+') do
    if not set.order then
      set.order = word
    elseif word == SEPARATOR and set.order == '-' then
      list = add_list(set)
    else
      add_entry(set, list, word)
    end
  end
  if not ORDERS[set.order] then refuse('INVALID', 'expected the order of a pool, got ' .. string.sub(tostring(set.order), 1, 40)) end
  if set.size < 1 or set.size > MAX_BATCH then
    refuse('INVALID', string.format('a set must have 1 to %d queues, patterns or exclusions', MAX_BATCH))
  end
  set.is_pool = set.order ~= '-'
  return set
end

local function match(list, queue)
  for _, parts in ipairs(list.excluded) do
    if fits(queue, parts) then return nil end
  end
  for _, entry in ipairs(list.patterns) do
    if fits(queue, entry.parts) then return entry end
  end
end

-- The entry to which a queue belongs: its place and weight. Nil if the set does not have the queue.
local function entry_of(set, queue)
  local found = set.named[queue]
  for _, list in ipairs(set.lists) do
    if found then return found end
    found = match(list, queue)
  end
  return found
end

queue_sets.entry_of = entry_of

-- Finding the set of a caller

local by_text, by_id, by_text_count = {}, {}, 0 -- text -> set, id -> set

-- The set of a text; it need not be registered.
local function set_of(text)
  local set = by_text[text]
  if set then return set end
  set = parse('+' .. string.sub(redis.sha1hex(text), 1, 20), text)
  if by_text_count >= MAX_CACHED then by_text, by_id, by_text_count = {}, {}, 0 end
  by_text[text], by_id[set.id], by_text_count = set, set, by_text_count + 1
  return set
end

function queue_sets.of_pool(text)
  if type(text) ~= 'string' or #text > MAX_BATCH * (MAX_NAME + 9) then refuse('INVALID', 'expected a pool as text') end
  local set = set_of(text)
  if not set.is_pool then refuse('INVALID', 'expected the order of a pool, got -') end
  return set
end

local by_list, by_list_count = {}, 0 -- entries as they were given -> set

-- The words of a text, each once, sorted.
local function distinct(text, pattern)
  local sorted, seen = {}, {}
  for word in string.gmatch(text, pattern) do
    if not seen[word] then seen[word], sorted[#sorted + 1] = true, word end
  end
  table.sort(sorted)
  return sorted
end

-- The set of entries in any order, separated by spaces.
function queue_sets.of_list(given)
  local set = by_list[given]
  if set then return set end
  local lists = {}
  for _, list in ipairs(distinct(given, '[^|]+')) do lists[#lists + 1] = table.concat(distinct(list, '%S+'), ' ') end
  local text = table.concat(lists, ' | ')
  if string.find(text, '^[%w_.%-]+$') then
    set = { id = text, names = { text }, is_single = true }
  else
    set = set_of('- ' .. text)
  end
  if by_list_count >= MAX_CACHED then by_list, by_list_count = {}, 0 end
  by_list[given], by_list_count = set, by_list_count + 1
  return set
end

-- The registry

local registries, registries_count = {}, 0 -- digest -> registry
local EMPTY = { ids = {}, named = {}, patterned = {}, pools = {}, serving = {}, count = 0 }

local function load_registry()
  local found = { ids = {}, named = {}, patterned = {}, pools = {}, serving = {}, count = 0 }
  for _, id in ipairs(redis.call('ZRANGE', key.sets(), 0, -1)) do
    local done, set = true, by_id[id]
    if not set then done, set = pcall(set_of, redis.call('GET', key.set(id)) or '') end
    if done and set.id == id then
      found.ids[id] = set
      if set.is_pool then found.pools[#found.pools + 1] = set end
      if set.has_patterns then found.patterned[#found.patterned + 1] = set end
      for _, queue in ipairs(set.names) do
        local list = found.named[queue] or {}
        found.named[queue], list[#list + 1] = list, set
      end
    end
  end
  return found
end

local function registry()
  local digest = markers.sets
  if not digest then return EMPTY end
  local found = registries[digest]
  if found then return found end
  found = load_registry()
  if registries_count >= MAX_REGISTRIES then registries, registries_count = {}, 0 end
  registries[digest], registries_count = found, registries_count + 1
  return found
end

-- The registered sets that have a queue: those that name it, then those with a pattern.
function queue_sets.serving(queue)
  if not markers.sets then return NONE end
  local known = registry()
  local found = known.serving[queue]
  if found then return found end
  found = {}
  for _, set in ipairs(known.named[queue] or NONE) do found[#found + 1] = set end
  for _, set in ipairs(known.patterned) do
    if not set.named[queue] and entry_of(set, queue) then found[#found + 1] = set end
  end
  if known.count >= MAX_CACHED then known.serving, known.count = {}, 0 end
  known.serving[queue], known.count = found, known.count + 1
  return found
end

local function digest_of_ids()
  local ids = redis.call('ZRANGE', key.sets(), 0, -1)
  table.sort(ids)
  return ids[1] and redis.sha1hex(table.concat(ids, ' ')) or nil
end

-- Whether the marker is that of the registered sets.
function queue_sets.is_marked() return markers.sets == digest_of_ids() end

-- Call this after `sets` has changed.
local function update_markers()
  set_marker('sets', digest_of_ids())
  set_marker('pools', registry().pools[1] and 1 or nil)
  if not markers.pools then redis.call('DEL', key.filling()) end
  if markers.filling and redis.call('EXISTS', key.filling()) == 0 then set_marker('filling', nil) end
end

local function remove_sets(ids)
  for _, id in ipairs(ids) do
    redis.call('DEL', key.set(id), key.idle(id), key.live(id), key.ready(id))
    redis.call('HDEL', key.filling(), id)
  end
  redis.call('ZREM', key.sets(), unpack(ids))
end

-- Have the next claims of pools look at all queues again.
function queue_sets.fill_pools()
  if not markers.pools then return end
  for _, set in ipairs(registry().pools) do redis.call('HSET', key.filling(), set.id, '') end
  if not markers.filling then set_marker('filling', 1) end
end

local touched, touched_count = {}, 0 -- key -> time

local function touch(set)
  local name = key.idle(set.id)
  if touched_count >= MAX_CACHED then touched, touched_count = {}, 0 end
  if not touched[name] then touched_count = touched_count + 1 end
  touched[name] = now
end

local function register_set(set)
  local surplus = redis.call('ZCARD', key.sets()) - MAX_SETS + 1
  if surplus > 0 then remove_sets(redis.call('ZRANGE', key.sets(), 0, surplus - 1)) end -- the least recently used
  redis.call('ZADD', key.sets(), now, set.id)
  redis.call('SET', key.set(set.id), set.text)
  registries, registries_count = {}, 0 -- one of these ids may have been read without its text, if that was lost
  if set.is_pool then
    redis.call('HSET', key.filling(), set.id, '')
    set_marker('filling', 1)
  end
  touch(set)
  update_markers()
end

-- Register a set that is used. Once a minute, note that it is, and remove the workers and executors that are gone.
function queue_sets.use(set)
  if not set.is_single and not registry().ids[set.id] then register_set(set) end
  if math.abs(now - (touched[key.idle(set.id)] or 0)) < TOUCH_INTERVAL then return end
  touch(set)
  if not set.is_single then
    redis.call('ZADD', key.sets(), now, set.id)
    redis.call('SET', key.set(set.id), set.text) -- it may be lost although this server knows it
  end
  redis.call('ZREMRANGEBYSCORE', key.live(set.id), '-inf', now - setting('worker_age'))
  redis.call('ZREMRANGEBYSCORE', key.idle(set.id), '-inf', now - core.IDLE_TIMEOUT)
end

-- Remove some sets that nobody has used for a while. Who uses one after all registers it again.
function queue_sets.prune()
  if not markers.sets then return end
  local old = redis.call('ZRANGEBYSCORE', key.sets(), '-inf', now - UNUSED_AGE, 'LIMIT', 0, PRUNED)
  if not old[1] then return end
  remove_sets(old)
  update_markers()
end

-- Workers

-- Record that a worker serves a set, if any, and no longer the one before.
function queue_sets.record_heartbeat(worker, set, before)
  if before and before ~= '' and (not set or before ~= set.id) then redis.call('ZREM', key.live(before), worker) end
  if not set then return end
  queue_sets.use(set)
  redis.call('ZADD', key.live(set.id), now, worker)
  redis.call('PEXPIRE', key.live(set.id), setting('worker_age'))
end

function queue_sets.forget_worker(worker)
  local set = redis.call('HGET', key.worker(worker), 'set')
  if set and set ~= '' then redis.call('ZREM', key.live(set), worker) end
  redis.call('DEL', key.worker(worker), key.inbox(worker))
  redis.call('ZREM', key.workers(), worker)
end

-- Returns a function that counts the live workers of a queue.
function queue_sets.new_count()
  local counts, since = {}, now - HEARTBEAT_TIMEOUT
  return function(queue)
    local total = redis.call('ZCOUNT', key.live(queue), since, '+inf')
    for _, set in ipairs(queue_sets.serving(queue)) do
      counts[set.id] = counts[set.id] or redis.call('ZCOUNT', key.live(set.id), since, '+inf')
      total = total + counts[set.id]
    end
    return total
  end
end

-- Pools

-- The score of a queue in `ready` that has no place in the order yet; see pools.lua.
local function first_place(set, queue) return set.order == 'strict' and entry_of(set, queue).place or -1 end

-- Have pools look for jobs in a queue.
function queue_sets.mark_ready(queue)
  for _, set in ipairs(queue_sets.serving(queue)) do
    if set.is_pool then redis.call('ZADD', key.ready(set.id), 'NX', first_place(set, queue), queue) end
  end
end

-- Whether this is the text of the set with this id.
function queue_sets.is_text_of(id, text)
  local done, set = pcall(set_of, text)
  return done and set.id == id
end

queue_sets.first_place, queue_sets.update_markers, queue_sets.remove = first_place, update_markers, remove_sets
core.queue_sets = queue_sets
