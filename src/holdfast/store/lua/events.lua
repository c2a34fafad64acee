-- events: the events after a known one, in order; or the latest ones.
--
--   args.after   id of the last known event
--   args.limit   up to 1,000 (100)
--
-- Errors: INVALID. Returns for each: id, type, ids of jobs (or names of queues), who caused it.

local check_integer, refuse, register = core.check_integer, core.refuse, core.register
local MAX_BATCH = constants.MAX_BATCH

register('events', { 'no-writes' }, function(args)
  local limit, list = check_integer(args.limit or constants.DEFAULT_PAGE, 'the limit', 1, MAX_BATCH), nil
  if args.after then
    if not string.find(tostring(args.after), '^%d+%-?%d*$') then
      refuse('INVALID', 'expected the id of an event as `after`')
    end
    list = redis.call('XRANGE', key.events, '(' .. args.after, '+', 'COUNT', limit)
  else
    list = redis.call('XREVRANGE', key.events, '+', '-', 'COUNT', limit)
  end
  local reply = {}
  for place, entry in ipairs(list) do
    local at = args.after and place or #list - place + 1
    reply[at] = { entry[1], entry[2][2], entry[2][4], entry[2][6] }
  end
  return reply
end)
