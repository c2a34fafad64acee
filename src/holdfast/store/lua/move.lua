-- move: move jobs to another queue, or change their priority.
--
--   args.ids        up to 1,000
--   args.queue      the new queue, in which the job is ordered as a new one
--   args.priority   the new priority; within a queue without shares, the job keeps its arrival order
--   args.tags       the tags of the job from now on (default: those that it has); see marks.lua
--   args.token      see call.lua
--
-- Errors: INVALID. Returns an answer per id: the job's state, NOTFOUND, NEWER, DAMAGED, or STATE if it has ended, or is running
-- and would change its queue.

local FAIR, LIMITED, action, add_note = core.FAIR, core.LIMITED, core.action, core.add_note
local assign_arrival, keep_origin = core.assign_arrival, core.keep_origin
local change_head, check_action, check_optional = core.change_head, core.check_action, core.check_optional
local check_queue, collect, dependencies, emit = core.check_queue, core.collect, core.dependencies, core.emit
local has, limits, marks, pack_status = core.has, core.limits, core.marks, core.pack_status
local note_wait, refuse = core.note_wait, core.refuse
local register_action, register_queue, to_scheduled = core.register_action, core.register_queue, core.to_scheduled
local to_waiting, unless_final, wake_later = core.to_waiting, core.unless_final, core.wake_later

-- Remove a job from its queue, and add it to another.
local function change_queue(job, queue)
  local state, timer = job.state, nil
  if state == 'scheduled' then timer = tonumber(redis.call('ZSCORE', key.timers, job.id)) end
  if has(job.flags, LIMITED) then limits.leave(job) end
  collect(index_removals, key.index[job.queue][state], job.id)
  job.queue, job.state = queue, nil
  assign_arrival(job)
  register_queue(queue)
  if timer then return to_scheduled(job, timer) end
  if state == 'blocked' then return dependencies.to_blocked(job) end
  to_waiting(job)
  wake_later(queue)
end

-- Reorder a job among those of its new priority. In a queue with shares, each priority has its own virtual time, so the
-- job is ordered as a new one.
local function change_priority(job, before)
  if has(job.flags, FAIR) and job.priority ~= before then
    assign_arrival(job)
    redis.call('HSET', key.job(job.id), 's', pack_status(job))
  end
  if job.state == 'waiting' and job.priority ~= before then return to_waiting(job) end
  if job.state == 'throttled' then
    limits.remove_parked(job)
    to_waiting(job)
    wake_later(job.queue)
  end
end

-- Record what changes, if anything does.
local function add_notes(job, queue, args)
  local priority = args.priority or job.priority
  if queue == job.queue and priority == job.priority then return end
  keep_origin(job)
  note_wait(job)
  if queue ~= job.queue then add_note(job, 'M', string.format('from %s to %s', job.queue, queue)) end
  if priority ~= job.priority then add_note(job, 'P', string.format('from %d to %d', job.priority, priority)) end
end

action.move = unless_final(function(job, args)
  local queue = args.queue or job.queue
  if job.state == 'running' and queue ~= job.queue then return 'STATE' end
  local before, from = job.priority, job.queue
  add_notes(job, queue, args)
  job.priority = args.priority or before
  local head = redis.call('HGET', key.job(job.id), 'h')
  redis.call('HSET', key.job(job.id), 'h', change_head(head, queue, job.priority))
  if queue ~= job.queue then change_queue(job, queue) else change_priority(job, before) end
  if args.tags then marks.replace_tags(job, args.tags) end
  emit('moved', job, { from, queue, job.priority ~= before and string.format('%d', job.priority) or '' })
  return job.state
end)

function check_action.move(args)
  if args.queue then check_queue(args.queue) end
  check_optional(args.priority, 'the priority', constants.MIN_PRIORITY, constants.MAX_PRIORITY)
  if args.tags then args.tags = marks.check_tags(args.tags) end
  if not args.queue and not args.priority then refuse('INVALID', 'specify `queue` or `priority`') end
end

register_action('move', {})
