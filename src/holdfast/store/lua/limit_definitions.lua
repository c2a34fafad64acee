-- limit_definitions: define, remove and list limits. See limits.lua for how they are enforced.
--
--   set_limit(name, slots, per)   `slots` concurrent jobs, or starts within any `per` milliseconds
--   remove_limit(name)            parked jobs start as others do; an undefined name is forgotten until a job uses it again
--   limits()                      for each: name, slots, period (0: concurrent jobs), number of keys with parked jobs, and of
--                                 the limit without a key: numbers of holders and of parked jobs. Limits that jobs used but
--                                 nobody has defined have 0 slots, and are not enforced
--
-- Errors: INVALID. Changes take effect with the next claim; functions return 1 if they changed anything.

local check_integer, check_name, emit, limits = core.check_integer, core.check_name, core.emit, core.limits
local publish_events, refuse, register, set_marker = core.publish_events, core.refuse, core.register, core.set_marker
local MAX_DURATION = constants.MAX_DURATION

local MAX_LIMITS = 1000

local function limit_name(value) return check_name(value, 'a limit', constants.MAX_KEY, '%w_.%-') end

local function changed(name)
  if redis.call('EXISTS', key.throttling(name)) == 1 then
    redis.call('SUNIONSTORE', key.reviewing(name), key.reviewing(name), key.throttling(name))
    redis.call('SADD', key.changed(), name)
    limits.review(name)
    if redis.call('EXISTS', key.changed()) == 1 then set_marker('changed', 1) end
  end
  emit('configured', name)
  publish_events()
end

register('set_limit', {}, function(args)
  limit_name(args.name)
  check_integer(args.per or 0, 'the period', 0, MAX_DURATION)
  check_integer(args.slots, 'slots', 1, (args.per or 0) > 0 and limits.MAX_PER_PERIOD or limits.MAX_SLOTS)
  local text = string.format('%d %.0f', args.slots, args.per or 0)
  local before = redis.call('HGET', key.limits(), args.name)
  if before == text then return 0 end
  if not before and redis.call('HLEN', key.limits()) >= MAX_LIMITS then
    refuse('INVALID', string.format('there are already %d limits (the maximum)', MAX_LIMITS))
  end
  redis.call('HSET', key.limits(), args.name, text)
  limits.forget_undefined(args.name)
  changed(args.name)
  return 1
end)

register('remove_limit', { 'allow-oom' }, function(args)
  local gone = redis.call('HDEL', key.limits(), limit_name(args.name))
  if gone == 1 then changed(args.name) end
  return (limits.forget_undefined(args.name) or gone == 1) and 1 or 0
end)

local function count_parked(limit)
  local count = 0
  for _, queue in ipairs(redis.call('SMEMBERS', key.parking(limit))) do
    count = count + redis.call('ZCARD', key.parked(limit, queue))
  end
  return count
end

local function describe(name)
  local slots, per = limits.definition(name)
  return { name, slots or 0, per or 0, redis.call('SCARD', key.throttling(name)), redis.call('SCARD', key.holders(name)),
    count_parked(name) }
end

register('limits', { 'no-writes' }, function()
  local reply = {}
  for _, name in ipairs(redis.call('HKEYS', key.limits())) do reply[#reply + 1] = describe(name) end
  for _, name in ipairs(redis.call('SMEMBERS', key.undefined())) do reply[#reply + 1] = describe(name) end
  return reply
end)
