-- deadline: jobs of which no attempt may start after a time.
--
-- That time is the field `d` of the record, and a timer, `!id`. When it comes, a job that is not running fails; one that runs
-- goes on, but if it comes back it is not started again. A job that is retried by somebody has no deadline any more.

local collect = core.collect
local DEADLINE, FINAL, has, load_job, add_note, with = core.DEADLINE, core.FINAL, core.has, core.load_job, core.add_note, core.with
local fail_job = core.fail_job

local deadlines = {}

-- Give a job the deadline that its batch says, if it does. Returns the field.
function deadlines.set(job, batch)
  local time = batch.deadline_at or (batch.deadline and now + batch.deadline)
  if not time then return nil end
  job.flags = with(job.flags, DEADLINE, true)
  collect(index_additions, key.timers, time, '!' .. job.id)
  return string.format('%.0f', time)
end

local function drop_deadline(job)
  if not has(job.flags, DEADLINE) then return end
  job.flags = with(job.flags, DEADLINE, false)
  collect(index_removals, key.timers, '!' .. job.id)
end

function deadlines.has_passed(job)
  return has(job.flags, DEADLINE) and tonumber(redis.call('HGET', key.job(job.id), 'd') or now + 1) <= now
end

function deadlines.miss(job)
  add_note(job, 'F', 'its deadline has passed')
  fail_job(job, 'deadline', 'T', nil, {})
end

-- The timer of a deadline. Call it settled. Returns whether the job cannot be read: then the timer stays.
function deadlines.on_timer(id)
  local job, fault = load_job(id)
  if fault == 'NEWER' or fault == 'DAMAGED' then return true end
  redis.call('ZREM', key.timers, '!' .. id)
  if job and not FINAL[job.state] and job.state ~= 'running' then deadlines.miss(job) end
end

core.drop_deadline, core.deadlines = drop_deadline, deadlines
