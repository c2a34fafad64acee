-- libraries: which function libraries on this server are in use; see client/libraries.py.
--
--   last_used()                when a function of this library was last called, in any namespace; 0: not since it was loaded,
--                              or the server started. Asking does not count
--   track_libraries(libraries) `libraries`: digest -> what `last_used` has answered. Remembers since when each answer is the
--                              same. Returns the digests of those that nobody has called for LIBRARY_TTL
--
-- Errors: INVALID. Only that an answer is another one counts, not the time in it. A library whose few calls are always followed by
-- a restart before the next question looks unused; its next call loads it again.

local check_integer, check_name, refuse, register = core.check_integer, core.check_name, core.refuse, core.register
local LIBRARY_TTL, MAX_BATCH = constants.LIBRARY_TTL, constants.MAX_BATCH

register('last_used', { 'no-writes' }, function(_, _, before)
  now = before
  return before or 0
end, true)

local function check_libraries(libraries)
  if type(libraries) ~= 'table' then refuse('INVALID', '`libraries` must be an object') end
  local count = 0
  for digest, used in pairs(libraries) do
    count = count + 1
    check_name(digest, 'a digest', 12, '%x')
    check_integer(used, 'the time of the last use', 0, 2 ^ 52)
  end
  if count > MAX_BATCH then refuse('INVALID', string.format('there are more than %d libraries', MAX_BATCH)) end
end

-- Since when the answer of a library is the same; nil if that is not known, or it is another one now.
local function unused_since(known, used)
  local value, since = string.match(known or '', '^(%d+) (%d+)$')
  value, since = tonumber(value), tonumber(since)
  if not since or since > now then return nil end
  return (used == 0 or used == value) and since or nil
end

register('track_libraries', { 'allow-oom' }, function(args)
  check_libraries(args.libraries)
  local list, known, unused = redis.call('HGETALL', key.libraries()), {}, {}
  for place = 1, #list, 2 do
    known[list[place]] = list[place + 1]
    if not args.libraries[list[place]] then redis.call('HDEL', key.libraries(), list[place]) end
  end
  for digest, used in pairs(args.libraries) do
    local since = unused_since(known[digest], used)
    if not since then
      redis.call('HSET', key.libraries(), digest, string.format('%.0f %.0f', used, now))
    elseif now - since >= LIBRARY_TTL then
      unused[#unused + 1] = digest
    end
  end
  return unused
end, true)
