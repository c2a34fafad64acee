-- retry: run ended jobs again, with their counters reset. Checkpoint, history and attempt numbers continue.
--
--   args.ids     up to 1,000
--   args.force   also retry jobs whose work was done but could not be recorded; it is repeated
--   args.queue   the queue in which they run from now on (default: their own)
--   args.token   see call.lua (default: the call may run twice)
--
-- Errors: INVALID. Returns an answer per id: waiting, blocked, NOTFOUND, NEWER, DAMAGED, STATE if it has not ended, DONE if its
-- work was done and `force` is not set, CYCLE if it would depend on itself, EXISTS if another job owns its unique key.

local AWAITED, FINAL, INDEXED, UNIQUE, action = core.AWAITED, core.FINAL, core.INDEXED, core.UNIQUE, core.action
local add_note, batches = core.add_note, core.batches
local assign_arrival, check_action, dependencies = core.assign_arrival, core.check_action, core.dependencies
local change_head, check_queue, collect, failures = core.change_head, core.check_queue, core.collect, core.failures
local emit, flush, has, load_job, permanent = core.emit, core.flush, core.has, core.load_job, core.permanent
local reacquire_key, refuse, register_action, register_queue = core.reacquire_key, core.refuse, core.register_action, core.register_queue
local to_waiting, wake_executor = core.to_waiting, core.wake_executor

local WORK_DONE = { ['result-not-stored'] = true, ['result-too-big'] = true, ['step-not-kept'] = true } -- failure groups; see job/outcome.py

function check_action.retry(args)
  if args.queue then check_queue(args.queue) end
  if args.force ~= nil and type(args.force) ~= 'boolean' then refuse('INVALID', '`force` must be true or false') end
end

-- An ended job leaves its queue. The move to its new state adds it to the other.
local function change_queue(job, queue)
  local head, from = redis.call('HGET', key.job(job.id), 'h'), job.queue
  redis.call('HSET', key.job(job.id), 'h', change_head(head, queue, job.priority))
  collect(index_removals, key.index[from][job.state], job.id)
  job.queue = queue
  register_queue(queue)
  emit('moved', job, { from, queue, '' })
end

function action.retry(id, args)
  local job, field, group = load_job(id, 'b', 'g')
  if not job then return field end -- NOTFOUND, NEWER or DAMAGED
  if not FINAL[job.state] then return 'STATE' end
  if WORK_DONE[group] and not args.force then return 'DONE' end
  if field and dependencies.is_cycle(id, redis.call('HKEYS', key.after(id))) ~= false then return 'CYCLE' end
  if has(job.flags, UNIQUE) and reacquire_key(job) then return 'EXISTS' end
  if has(job.flags, INDEXED) then batches.on_retry(job) end
  if job.state == 'failed' then failures.remove(job) end
  if args.queue and args.queue ~= job.queue then change_queue(job, args.queue) end
  assign_arrival(job)
  job.retries_used, job.crashes_used, job.lost_used, job.misses, job.flags = 0, 0, 0, 0, permanent(job.flags)
  redis.call('HDEL', key.job(id), 'r', 'g', 'v', 'y', 'd', 'q')
  redis.call('DEL', key.blob('r', id))
  add_note(job, 'R')
  local is_blocked = field and dependencies.relink_all(job, field) > 0
  if is_blocked then dependencies.to_blocked(job) else to_waiting(job) end
  if has(job.flags, AWAITED) then to_resolve[#to_resolve + 1] = { id, '-', '-inf' } end
  emit('retried', job)
  flush()
  if is_blocked then return 'blocked' end
  wake_executor(job.queue)
  return 'waiting'
end

register_action('retry', { 'allow-oom' })
