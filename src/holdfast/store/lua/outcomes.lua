-- outcomes: how jobs ended that others depended on and that have been removed since.
--
-- A dependency counts as it ended, even if it has no record any more: when a job waits for it from now on, is retried, or
-- has missed its end. Only jobs with the flag AWAITED are remembered, up to MAX of them, those removed last; so other jobs
-- cost nothing. A new job with the same id starts afresh.
--
-- The score is the time of the removal in milliseconds, times 4, plus 1 for succeeded, 2 for failed, 3 for cancelled. The marker
-- `outcomes` says that there may be some.

local AWAITED, DAY, LETTER_OF, has, set_marker = core.AWAITED, core.DAY, core.LETTER_OF, core.has, core.set_marker

local MAX, MAX_AGE = 100000, 30 * DAY -- the age since the last one
local LETTERS = { 'S', 'F', 'C' }
local NUMBER_OF = { S = 1, F = 2, C = 3 }
local outcomes = {}

-- Call this when a job that ended in this state is removed.
function outcomes.remember(job, state)
  local number = NUMBER_OF[LETTER_OF[state]]
  if not number or not has(job.flags, AWAITED) then return end
  local added = redis.pcall('ZADD', key.outcomes(), now * 4 + number, job.id)
  if type(added) == 'table' then return end -- the key is damaged, which fsck repairs; jobs end all the same
  redis.call('ZREMRANGEBYRANK', key.outcomes(), 0, -(MAX + 1))
  redis.call('PEXPIRE', key.outcomes(), MAX_AGE)
  if not markers.outcomes then set_marker('outcomes', 1) end
end

-- The letter of a removed job; nil if it is not known how it ended.
function outcomes.find(id)
  local score = redis.pcall('ZSCORE', key.outcomes(), id)
  return type(score) == 'string' and LETTERS[tonumber(score) % 4] or nil
end

-- Call this when jobs are stored.
function outcomes.forget(ids)
  if markers.outcomes and #ids > 0 then redis.pcall('ZREM', key.outcomes(), unpack(ids)) end
end

core.outcomes = outcomes
