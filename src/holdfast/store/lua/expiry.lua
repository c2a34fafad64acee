-- expiry: ended jobs with a time to live of their own (`keep`), instead of the age that their queue's settings allow.
--
-- The time to live is the field `k` of the record. While the job is in a final state, it is also in the sorted set `expiring`,
-- by the time of its removal. A failed job is kept at least as long as the setting of its queue. `prune` sets jobs aside that
-- outlive this setting: their scores in the index become negative, so pruning by age does not meet them again, and they are
-- still the oldest. The maximum number of kept jobs applies to them, too.
--
-- The set is apart from `timers`: a million jobs that expire at once do not delay due jobs and expired leases, do not wake
-- executors, and do not count as overdue work.

local setting = core.setting

local expiry = { SET_ASIDE = 2 ^ 45 } -- subtracted from the score of such a job

-- How long an ended job is kept. `keep`: the field, if it was read already.
function expiry.time_to_live(job, keep)
  local own = tonumber(keep or redis.call('HGET', key.job(job.id), 'k') or '')
  if own and job.state ~= 'failed' then return own end
  return math.max(own or 0, setting('keep_' .. job.state, job.queue))
end

-- When an ended job is removed.
local function time_of_removal(job) return job.since + expiry.time_to_live(job) end

core.expiry, core.time_of_removal = expiry, time_of_removal
