-- check_walk: visit all keys of the namespace, a bounded number per call, and check each.
--
-- check: find what does not fit together. repair: the same, and repair it.
--
--   args.units     how much to do: a unit is about five commands (default: 400, about 2 ms)
--   args.memory    only measure the memory of keys
--   args.again     of `repair`: a whole pass was made before, so links that it could not restore are given up
--   blob           the position that the call before returned (default: begin)
--
-- Errors: INVALID. Returns: the next position ('' at the end); how many keys, and entries of them, this call has checked; a list
-- of findings (code, what it means, what a repair does or '', count, how many were repaired, up to 5 examples); and a list of
-- what keys take memory: name, keys, how many of them were measured, their bytes.
--
-- The position is where SCAN is among the keys, keys that it returned and that are still to be checked, and where in the first of
-- them. Keys that exist all the time are visited at least once. A call may be repeated, or never be followed by another.
--
-- check_history: what upkeep has found so far. Returns how many times it has checked all keys; when the last
-- time began and finished (0: not yet); and of each code: the code, what it means, count, how many were repaired, when it was found
-- last, and an example.
--
-- Calls that advance time do a small step once a second, of `check_rate` units, and repair what they find. The hash `check` has
-- its position, `passes`, `began`, `finished`, and of each code that was found: count, repaired, time and example.

local check, check_optional, flush, is_refusal = core.check, core.check_optional, core.flush, core.is_refusal
local parse_key, publish_events, recover, refuse = core.parse_key, core.publish_events, core.recover, core.refuse
local register, setting = core.register, core.setting

local UNITS, MAX_UNITS = 400, 10000
local SCANNED, PAGE = 100, 50 -- keys and entries per command; an entry is about two units
local KEY_COST, ENTRY_COST = 0.6, 0.7 -- units
local MEASURED = 8 -- of keys that each job has, one of so many is measured

local SCAN_OF = { hash = 'HSCAN', zset = 'ZSCAN', set = 'SSCAN' }

-- Memory

local function measure(kind, name)
  local step = check.step()
  local row = step.memory[kind.name]
  if not row then
    row = { kind.name, 0, 0, 0 }
    step.memory[kind.name], step.memory[#step.memory + 1] = row, row
  end
  row[2] = row[2] + 1
  if kind.each and row[2] % MEASURED ~= 1 then return end
  local bytes = redis.pcall('MEMORY', 'USAGE', name)
  if type(bytes) == 'number' then row[3], row[4] = row[3] + 1, row[4] + bytes end
end

-- Keys

local function check_ttl(kind, name)
  if kind.ttl == 'any' then return end
  local life = redis.call('PTTL', name)
  if kind.ttl and life == -1 then
    check.find('never_expires', core.short_key(name), function() redis.call('PEXPIRE', name, kind.ttl) end)
  elseif not kind.ttl and life >= 0 then
    check.find('expires', core.short_key(name), function() redis.call('PERSIST', name) end)
  end
end

-- What is known about a key of this name; nil if nothing is.
local function kind_of(name)
  local family, rest = parse_key(name)
  local kind = family and check.kinds[family]
  if kind and (kind.single or false) == (rest == nil) then return kind, rest end
end

-- The value of an entry now: a repair may have changed it.
local function read_entry(type_of, name, member)
  if type_of == 'zset' then return redis.call('ZSCORE', name, member) end
  if type_of == 'hash' then return redis.call('HGET', name, member) end
  return redis.call('SISMEMBER', name, member) == 1 and member
end

-- Check a page of the entries of a key. Returns the next cursor.
local function check_entries(kind, rest, name, cursor)
  local step = check.step()
  local page = redis.call(SCAN_OF[kind.type], name, cursor, 'COUNT', PAGE)
  local list, width = page[2], kind.type == 'set' and 1 or 2
  for place = 1, #list, width do
    local member, value = list[place], list[place + width - 1]
    if step.has_repaired then value = read_entry(kind.type, name, member) end
    if value then
      step.entries = step.entries + 1
      check.spend(ENTRY_COST)
      kind.entry(rest, name, member, value)
    end
  end
  return page[1]
end

-- Check a key, or continue with its entries. Returns the next cursor of its entries, '0' at the end.
local function check_key(name, cursor, only_memory)
  local kind, rest = kind_of(name)
  local type_of = redis.call('TYPE', name).ok
  if type_of == 'none' then return '0' end
  if not kind then
    if not only_memory and cursor == '0' then check.unknown(name) end
    return '0'
  end
  if cursor == '0' then
    check.step().keys = check.step().keys + 1
    measure(kind, name)
  end
  if only_memory then return '0' end
  if kind.type ~= type_of and kind.type ~= 'any' then
    check.report_type(name)
    return '0'
  end
  if cursor == '0' then
    check_ttl(kind, name)
    if kind.whole and kind.whole(rest, name) == false then return '0' end
  end
  return kind.entry and check_entries(kind, rest, name, cursor) or '0'
end

-- As above, but an error concerns this key alone.
local function try_key(name, cursor, only_memory)
  local done, reply = pcall(check_key, name, cursor, only_memory)
  if done then return reply end
  if not is_refusal(reply) then recover(reply) end
  check.find('not_checked', core.short_key(name))
  return '0'
end

-- Positions

local function pack_position(position)
  if position.is_over then return '' end
  return cmsgpack.pack({ position.scan, position.entry, unpack(position.names) })
end

local function read_position(packed)
  if not packed or packed == '' then return { scan = '', entry = '0', names = {} } end
  local done, list = pcall(cmsgpack.unpack, packed)
  if not done or type(list) ~= 'table' then refuse('INVALID', 'expected the position of an earlier call') end
  for place, text in ipairs(list) do
    if type(text) ~= 'string' or place <= 2 and not string.find(text, '^%d*$') then
      refuse('INVALID', 'expected the position of an earlier call')
    end
  end
  local position = { scan = list[1] or '', entry = list[2] or '0', names = {} }
  for place = 3, #list do position.names[place - 2] = core.full_key(list[place]) end
  return position
end

-- Have SCAN return the next keys; after the last ones, the walk is over.
local function scan(position)
  if position.is_last then
    position.is_over = true
    return
  end
  local count = math.max(10, math.min(SCANNED, math.floor(check.step().units / 2)))
  local reply = redis.call('SCAN', position.scan, 'MATCH', core.key_pattern(), 'COUNT', count)
  check.spend(count / 20)
  position.scan, position.names, position.is_last = reply[1], reply[2], reply[1] == '0'
end

-- Visit keys from a position until the units are spent.
local function walk(position, only_memory)
  local step = check.step()
  if position.scan == '' then
    if not only_memory then check.meta() end
    position.scan = '0'
    scan(position)
  elseif position.scan == '0' then
    position.is_last = true
  end
  local at = 1
  while step.units > 0 and not position.is_over do
    local name = position.names[at]
    if name then
      check.spend(KEY_COST)
      position.entry = try_key(name, position.entry, only_memory)
      if position.entry == '0' then at = at + 1 end
    else
      scan(position)
      at = 1
    end
  end
  local rest = {}
  for place = at, #position.names do rest[#rest + 1] = core.short_key(position.names[place]) end
  position.names = rest
end

local has_repaired_meta = false -- by the current call, before it read `meta`

local function run_step(repairs, units, packed, only_memory, is_again)
  local position, step = read_position(packed), check.begin(repairs, units, is_again)
  if has_repaired_meta then check.find('wrong_type', 'meta', function() has_repaired_meta = false end) end
  walk(position, only_memory)
  return pack_position(position), step
end

local function reply_of(args, blobs, repairs)
  check_optional(args.units, '`units`', 1, MAX_UNITS)
  local position, step = run_step(repairs, args.units or UNITS, blobs[2], args.memory, args.again)
  local memory = {}
  for place, row in ipairs(step.memory) do memory[place] = row end
  return { position, step.keys, step.entries, check.findings(), memory }
end

-- No call can be made while `meta` is of a wrong type, so this is found before it is read. A check finds only this; a repair goes
-- on.
local function find_meta_type(repairs)
  local type_of = redis.call('TYPE', key.meta).ok
  if type_of == 'hash' or type_of == 'none' then return nil end
  check.begin(repairs, UNITS)
  check.report_type(key.meta)
  if repairs then has_repaired_meta = true else return { '', 1, 0, check.findings(), {} } end
end

register('check', { 'no-writes' }, function(args, blobs) return reply_of(args, blobs, false) end, false, function() return find_meta_type(false) end)

register('repair', { 'allow-oom' }, function(args, blobs)
  local reply = reply_of(args, blobs, true)
  flush()
  publish_events()
  return reply
end, false, function() return find_meta_type(true) end)

-- Upkeep

-- A number of at most as many digits as a client can read as a time.
local function is_number(text) return #text <= 15 and string.find(text, '^%d+$') ~= nil end

local function parse_history(text)
  local count, repaired, time, example = string.match(text or '', '^(%d+) (%d+) (%d+) (.*)$')
  if count and not (is_number(count) and is_number(repaired) and is_number(time)) then count, repaired, time, example = nil end
  return tonumber(count or 0), tonumber(repaired or 0), tonumber(time or 0), example or ''
end

local function remember(code, found)
  local count, repaired = parse_history(redis.call('HGET', key.check(), code))
  redis.call('HSET', key.check(), code,
    string.format('%d %d %.0f %s', count + found.count, repaired + found.repaired, now, found.examples[1]))
  redis.log(redis.LOG_WARNING, string.format('holdfast: found %s %d times, repaired %d: %s', code, found.count, found.repaired,
    found.examples[1]))
end

-- Check a few keys, and repair what does not fit together.
function check.maintain()
  local units, name = setting('check_rate'), key.check()
  if units == 0 then return end
  flush()
  if changed_counts then core.marks.store_counts() end -- or catalogues would seem to be wrong
  local packed = redis.pcall('HGET', name, 'position')
  if type(packed) == 'table' then redis.call('DEL', name) end -- of a wrong type
  local is_known, position = pcall(run_step, true, units, type(packed) == 'string' and packed or '')
  if not is_known then
    if not is_refusal(position) then error(position, 0) end
    position = ''
  end
  redis.call('HSET', name, 'position', position)
  if position == '' then
    redis.call('HINCRBY', name, 'passes', 1)
    redis.call('HSET', name, 'began', redis.call('HGET', name, 'finished') or 0, 'finished', now)
  end
  local step = check.step()
  for _, code in ipairs(step.order) do remember(code, step.found[code]) end
end

register('check_history', { 'no-writes' }, function()
  local name = key.check()
  local values = redis.call('HMGET', name, 'passes', 'began', 'finished')
  local reply = {}
  for place = 1, 3 do reply[place] = is_number(values[place] or '') and tonumber(values[place]) or 0 end
  for _, row in ipairs(check.CODES) do
    local text = redis.call('HGET', name, row[1])
    if text then reply[#reply + 1] = { row[1], row[2], parse_history(text) } end
  end
  return reply
end)

-- What is damaged begins again. The position is refused where it is read.
local COUNTED = { passes = true, began = true, finished = true }
check.kind('check', { type = 'hash', name = 'other', single = true, entry = function(_, name, field, value)
  if not COUNTED[field] or is_number(value) then return end
  check.find('damaged_value', 'check ' .. field, check.removal('HDEL', name, field))
end })
