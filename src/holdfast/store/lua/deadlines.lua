-- deadlines: times after which no attempt of a job may start.
--
-- A deadline is the field `d` of the record, and a timer, `!id`. When it passes, a job that is not running fails; a running
-- one continues, but is not started again if it is requeued. A job that is retried by an operator loses its deadline.

local DEADLINE, FINAL, add_note, collect = core.DEADLINE, core.FINAL, core.add_note, core.collect
local fail_job, has, load_job = core.fail_job, core.has, core.load_job
local note_wait, with = core.note_wait, core.with

local deadlines = {}

-- Set the deadline that a batch specifies, if any. Returns the field.
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

function deadlines.miss(job)
  core.note_wait(job)
  add_note(job, 'F', 'its deadline has passed', '')
  fail_job(job, 'deadline', 'T', nil, {})
end

-- Handle the timer of a deadline. Flush first. Returns whether the timer stays, as the job cannot be read.
function deadlines.on_timer(id)
  local job, fault = load_job(id)
  if fault == 'NEWER' or fault == 'DAMAGED' then return true end
  redis.call('ZREM', key.timers, '!' .. id)
  if job and not FINAL[job.state] and job.state ~= 'running' then deadlines.miss(job) end
end

core.drop_deadline, core.deadlines = drop_deadline, deadlines
