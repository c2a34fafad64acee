-- deadline: jobs of which no attempt may start after a time.
--
-- That time is the field `d` of the record, and a timer, `!id`. When it comes, a job that is not running fails; one that runs
-- goes on, but if it comes back it is not started again. A job that is retried by somebody has no deadline any more.

local collect = core.collect
local DEADLINE, FINAL, has, load_job, note, with = core.DEADLINE, core.FINAL, core.has, core.load_job, core.note, core.with
local fail = core.fail

local deadline = {}

-- Give a job the deadline that its batch says, if it does. Returns the field.
function deadline.set(job, batch)
  local time = batch.deadline_at or (batch.deadline and now + batch.deadline)
  if not time then return nil end
  job.flags = with(job.flags, DEADLINE, true)
  collect(entering, key.timers, time, '!' .. job.id)
  return string.format('%.0f', time)
end

local function drop_deadline(job)
  if not has(job.flags, DEADLINE) then return end
  job.flags = with(job.flags, DEADLINE, false)
  collect(leaving, key.timers, '!' .. job.id)
end

function deadline.has_passed(job)
  return has(job.flags, DEADLINE) and tonumber(redis.call('HGET', key.job(job.id), 'd') or now + 1) <= now
end

function deadline.miss(job)
  note(job, 'F', 'its deadline has passed')
  fail(job, 'deadline', 'T', nil, {})
end

-- The timer of a deadline. Call it settled. Returns whether the job cannot be read: then the timer stays.
function deadline.ring(id)
  local job, fault = load_job(id)
  if fault == 'NEWER' or fault == 'DAMAGED' then return true end
  redis.call('ZREM', key.timers, '!' .. id)
  if job and not FINAL[job.state] and job.state ~= 'running' then deadline.miss(job) end
end

core.drop_deadline, core.deadline = drop_deadline, deadline
