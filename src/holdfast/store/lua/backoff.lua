-- backoff: the wait before a retry, from the end of the failed attempt.
--
--   item.delay    the wait; the other values are then ignored
--   item.waits    the waits before the first, the second ... retry; the last one repeats. Without them: c, 2c, 4c ...
--   item.cap      the wait is not longer
--   item.spread   thousandths of the wait that are added to it, so that jobs that failed together are not retried together
--
-- A retry is counted when it is claimed (claim.lua). `check_backoff` returns whether these values are valid.

local option = core.option
local MAX_DURATION, MAX_SPREAD, MAX_WAITS = constants.MAX_DURATION, constants.MAX_SPREAD, constants.MAX_WAITS

-- Optional values may be nil.
local function is_integer(value, max)
  return value == nil or type(value) == 'number' and value % 1 == 0 and value >= 0 and value <= max
end

local function are_waits(waits)
  if waits == nil then return true end
  if type(waits) ~= 'table' or #waits < 1 or #waits > MAX_WAITS then return false end
  for _, wait in ipairs(waits) do
    if not is_integer(wait, MAX_DURATION) then return false end
  end
  return true
end

local function check_backoff(item)
  return is_integer(item.delay, MAX_DURATION) and is_integer(item.cap, MAX_DURATION) and is_integer(item.spread, MAX_SPREAD)
    and are_waits(item.waits)
end

-- The wait before a retry. `used`: retries of the same budget before it.
local function retry_delay(job, item, used)
  if item.delay then return item.delay end
  local waits = item.waits
  local wait = waits and waits[math.min(used + 1, #waits)] or option(job, 'backoff') * 2 ^ math.min(used, 40)
  wait = math.min(wait, item.cap or MAX_DURATION, MAX_DURATION)
  return math.min(wait + math.floor(wait * (item.spread or 0) / MAX_SPREAD), MAX_DURATION)
end

core.check_backoff, core.retry_delay = check_backoff, retry_delay
