-- backoff: the wait before a retry.

local option = core.option
local MAX_DURATION = constants.MAX_DURATION

-- Backoff: c, 2c, 4c ... from the end of the failed attempt. A retry is counted when it is claimed (claim.lua).
local function retry_delay(job, item)
  if item.delay then return item.delay end
  return math.min(option(job, 'backoff') * 2 ^ math.min(job.retries_used, 40), MAX_DURATION)
end

core.retry_delay = retry_delay
