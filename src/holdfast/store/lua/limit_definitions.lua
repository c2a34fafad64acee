-- limit_definitions: define, declare, reset, remove and list limits. See limits.lua for how they are enforced.
--
-- An app declares its limits; a declared limit is a default. A limit that is set by hand overrides the default until it is
-- reset, or expires. The record of a limit is one field of the hash `limits`: its slots and its period (0: concurrent
-- jobs), as they apply; `-` if they are declared, else when they expire (0: never); then, if an app declares the limit:
-- slots, period and revision of the declaration. The expiry is a timer, `=name`.
--
--   set_limit(name, slots, per, ttl)            `slots` concurrent jobs, or starts within any `per` milliseconds, for `ttl`
--                                               milliseconds or until it is set again
--   declare_limit(name, slots, per, revision)   an older revision does not replace a newer one. Returns 0 if nothing changed,
--                                               1 if it applies now, 2 if a limit that was set by hand still applies
--   reset_limit(name)     what is declared applies again
--   remove_limit(name)    parked jobs start as others do; an undefined name is forgotten until a job uses it again
--   release_slot(limit, id)   a running job no longer holds a slot; the next parked job may take it
--   limits(after)         see `limits` below
--   limit_names()         the names of all defined limits, and of those that jobs used but nobody has defined
--
-- Errors: INVALID; STATE if a newer revision has declared the limit, if a limit to reset is not declared, or if a job does not
-- hold the slot. Changes take effect with the next claim; functions return 1 if they changed anything. They work when the
-- server is out of memory: there are at most MAX_LIMITS records, and a worker that cannot declare its limits would run without.

local add_note, check_id, check_integer, check_name = core.add_note, core.check_id, core.check_integer, core.check_name
local emit_about, flush, limits, load_job = core.emit_about, core.flush, core.limits, core.load_job
local publish_events, refuse = core.publish_events, core.refuse
local register, set_marker, sorts_before = core.register, core.set_marker, core.sorts_before
local MAX_DURATION = constants.MAX_DURATION

local MAX_LIMITS = 1000
local MAX_REVISION, MAX_TIME = 2 ^ 52, 2 ^ 47
local MAX_COUNTED = 5000 -- pairs of a limit and a queue whose parked jobs one call counts

local function limit_name(value) return check_name(value, 'a limit', constants.MAX_KEY, '%w_.%-') end

-- A limit with or without a key.
local function check_limit(value)
  local name, rest = string.match(type(value) == 'string' and value or '', '^([^:]+)(.*)$')
  limit_name(name or value)
  if rest ~= '' then check_name(string.sub(rest, 2), 'the key of a limit', constants.MAX_KEY, '%w._@/%-') end
  return value
end

-- What was set by hand, and what is declared: tables, or nil if there is none, or if it is damaged.
local function load_record(name)
  local text = redis.call('HGET', key.limits(), name) or ''
  local slots, per, expires, rest = string.match(text, '^(%d+) (%d+) ([%d-]+)(.*)$')
  local by_hand, declared
  slots, per = limits.read_definition(slots, per)
  expires = tonumber(expires)
  if slots and expires and expires <= MAX_TIME then by_hand = { slots = slots, per = per, expires = expires } end
  slots, per, rest = string.match(rest or '', '^ (%d+) (%d+) (%d+)$')
  slots, per = limits.read_definition(slots, per)
  if slots and tonumber(rest) <= MAX_REVISION then declared = { slots = slots, per = per, revision = tonumber(rest) } end
  return by_hand, declared
end

local function format_record(by_hand, declared)
  local applies = by_hand or declared
  local text = string.format('%d %.0f ', applies.slots, applies.per)
    .. (by_hand and string.format('%.0f', by_hand.expires) or '-')
  return declared and text .. string.format(' %d %.0f %.0f', declared.slots, declared.per, declared.revision) or text
end

-- After another definition applies, unpark jobs of all keys that may start now.
local function review(name)
  if redis.call('EXISTS', key.throttling(name)) == 0 then return end
  redis.call('ZUNIONSTORE', key.reviewing(name), 2, key.reviewing(name), key.throttling(name))
  redis.call('SADD', key.changed(), name)
  limits.review(name)
  if redis.call('EXISTS', key.changed()) == 1 then set_marker('changed', 1) end
end

local function set_expiry(name, by_hand)
  if not by_hand or by_hand.expires == 0 then return redis.call('ZREM', key.timers, '=' .. name) end
  redis.call('ZADD', key.timers, by_hand.expires, '=' .. name)
end

-- A definition as the event `configured` has it: `slots`, or `slots/period` in milliseconds.
local function describe(definition)
  return string.format(definition.per > 0 and '%d/%.0f' or '%d', definition.slots, definition.per)
end

-- Store a record; without either part, delete it. Returns whether that changed anything.
local function store_record(name, by_hand, declared)
  local slots, per = limits.definition(name)
  local applies = by_hand or declared
  local text = applies and format_record(by_hand, declared)
  local before = redis.call('HGET', key.limits(), name) or nil
  if text == before then return false end
  if text and not before and redis.call('HLEN', key.limits()) >= MAX_LIMITS then
    refuse('INVALID', string.format('there are already %d limits (the maximum)', MAX_LIMITS))
  end
  if text then redis.call('HSET', key.limits(), name, text) else redis.call('HDEL', key.limits(), name) end
  set_expiry(name, by_hand)
  if text then limits.forget_undefined(name) end
  if not applies or applies.slots ~= slots or applies.per ~= per then review(name) end
  emit_about('configured', name, { 'limit', 'slots', applies and describe(applies) or '' })
  return true
end

local function check_definition(args)
  limit_name(args.name)
  check_integer(args.per or 0, 'the period', 0, MAX_DURATION)
  check_integer(args.slots, 'slots', 1, (args.per or 0) > 0 and constants.MAX_STARTS or constants.MAX_SLOTS)
  return { slots = args.slots, per = args.per or 0 }
end

register('set_limit', { 'allow-oom' }, function(args)
  local by_hand = check_definition(args)
  by_hand.expires = args.ttl and now + check_integer(args.ttl, '`ttl`', 1, MAX_DURATION) or 0
  local _, declared = load_record(args.name)
  local is_changed = store_record(args.name, by_hand, declared)
  publish_events()
  return is_changed and 1 or 0
end)

register('declare_limit', { 'allow-oom' }, function(args)
  local declared = check_definition(args)
  declared.revision = check_integer(args.revision or 0, 'the revision', 0, MAX_REVISION)
  local by_hand, known = load_record(args.name)
  if known and known.revision > declared.revision then
    refuse('STATE', string.format('limit %s was declared by a newer release, revision %.0f', args.name, known.revision))
  end
  local is_changed = store_record(args.name, by_hand, declared)
  publish_events()
  return is_changed and (by_hand and 2 or 1) or 0
end)

register('reset_limit', { 'allow-oom' }, function(args)
  local _, declared = load_record(limit_name(args.name))
  if not declared then refuse('STATE', 'limit ' .. args.name .. ' is not declared by an app: remove it instead') end
  local is_changed = store_record(args.name, nil, declared)
  publish_events()
  return is_changed and 1 or 0
end)

register('remove_limit', { 'allow-oom' }, function(args)
  local is_changed = store_record(limit_name(args.name))
  publish_events()
  return (limits.forget_undefined(args.name) or is_changed) and 1 or 0
end)

-- The timer of a limit that was set for some time. A timer that is too early is set again.
local function expire_limit(name)
  local by_hand, declared = load_record(name)
  if not by_hand or by_hand.expires == 0 then return end
  if by_hand.expires > now then return set_expiry(name, by_hand) end
  store_record(name, nil, declared)
end

local function repair_expiry(name)
  local by_hand = load_record(name)
  if by_hand and by_hand.expires > 0 and not redis.call('ZSCORE', key.timers, '=' .. name) then set_expiry(name, by_hand) end
end

-- When a limit expires that was set for some time, or nil; and whether its record is damaged.
local function limit_expiry(name)
  local by_hand, declared = load_record(name)
  if not (by_hand or declared) or not limits.definition(name) then return nil, redis.call('HEXISTS', key.limits(), name) == 1 end
  return by_hand and by_hand.expires > 0 and by_hand.expires or nil, false
end

-- Replace a damaged record by what is enforced of it, as the declaration of the oldest revision. Returns false if that is nothing.
local function keep_definition(name)
  local slots, per = limits.definition(name)
  if not slots then return false end
  redis.call('HSET', key.limits(), name, format_record(nil, { slots = slots, per = per, revision = 0 }))
  return true
end

register('release_slot', { 'allow-oom' }, function(args)
  check_limit(args.limit)
  local _, per = limits.definition(args.limit)
  if per and per > 0 then
    refuse('STATE', string.format('limit %s counts starts per period, and a start cannot be taken back', args.limit))
  end
  if not limits.remove_holder(args.limit, check_id(args.id)) then
    refuse('STATE', 'job ' .. args.id .. ' does not hold a slot of limit ' .. args.limit)
  end
  local job = load_job(args.id)
  if job then add_note(job, 'N', 'its slot of limit ' .. args.limit .. ' was released') end
  limits.offer_slots(args.limit)
  flush()
  emit_about('configured', args.limit, { 'limit', 'released', args.id })
  publish_events()
  return 1
end)

-- The number of parked jobs of a limit, and of the queues that have any.
local function count_parked(limit)
  local count, queues = 0, redis.call('ZRANGE', key.parking(limit), 0, -1)
  for _, queue in ipairs(queues) do count = count + redis.call('ZCARD', key.parked(limit, queue)) end
  return count, #queues
end

-- Count the parked jobs of all keys of a name after a limit, within a budget. Returns the number, what is left of the
-- budget, and if it is used up, the last limit that was counted.
local function count_all_parked(name, after, left)
  local count = 0
  while true do
    local found = redis.call('ZRANGEBYLEX', key.throttling(name), after and '(' .. after or '-', '+', 'LIMIT', 0, 100)
    for _, limit in ipairs(found) do
      local parked, queues = count_parked(limit)
      count, left, after = count + parked, left - queues, limit
      if left <= 0 then return count, left, after end
    end
    if #found < 100 then return count, left end
  end
end

local function describe(name, parked)
  local slots, per = limits.definition(name)
  local by_hand, declared = load_record(name)
  return { name, slots or 0, per or 0, redis.call('ZCARD', key.throttling(name)), redis.call('ZCARD', key.holders(name)),
    parked, by_hand and 1 or 0, by_hand and by_hand.expires or 0, declared and declared.slots or 0,
    declared and declared.per or 0, declared and declared.revision or 0 }
end

local function sorted_names()
  local names = redis.call('HKEYS', key.limits())
  for _, name in ipairs(redis.call('SMEMBERS', key.undefined())) do
    if redis.call('HEXISTS', key.limits(), name) == 0 then names[#names + 1] = name end -- else its record is damaged
  end
  table.sort(names, sorts_before)
  return names
end

-- For each name: slots and period that apply (0 slots: undefined, not enforced); of all its keys together: number of keys
-- with parked jobs, of holders, and of parked jobs; whether it is set by hand, and when that expires (0: never); slots,
-- period and revision of its declaration (0 slots: none). If there is too much to count in one call, the first element of
-- the reply is a limit, else empty. The next call, with this limit as `after`, begins with a row of the same name, whose
-- parked jobs have to be added.
register('limits', { 'no-writes' }, function(args)
  local after = args.after and check_limit(args.after)
  local first, left, reply = after and limits.name_of(after), MAX_COUNTED, { '' }
  for _, name in ipairs(sorted_names()) do
    if not first or not sorts_before(name, first) then
      local parked, last
      parked, left, last = count_all_parked(name, name == first and after or nil, left)
      reply[#reply + 1] = describe(name, parked)
      if last then
        reply[1] = last
        return reply
      end
    end
  end
  return reply
end)

register('limit_names', { 'no-writes' }, function()
  return { redis.call('HKEYS', key.limits()), redis.call('SMEMBERS', key.undefined()) }
end)

core.check_limit, core.count_parked, core.expire_limit, core.repair_expiry = check_limit, count_parked, expire_limit, repair_expiry
core.limit_expiry, core.keep_definition = limit_expiry, keep_definition
