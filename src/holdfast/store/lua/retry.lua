-- retry: run ended jobs again, with their counters reset. History and attempt numbers continue; so does the work, from the
-- checkpoint and the kept steps.
--
--   args.ids         up to 1,000
--   args.force       also retry jobs whose work was done but could not be recorded; it is repeated
--   args.from_start  delete checkpoint, progress and kept steps, so that the work starts over: in a job that has advanced, its
--                    current stage
--   args.queue       the queue in which they run from now on (default: their own)
--   args.token       see call.lua (default: the call may run twice)
--
-- Errors: INVALID. Returns an answer per id: waiting, blocked, NOTFOUND, NEWER, DAMAGED, STATE if it has not ended, DONE if its
-- work was done and `force` is not set, CYCLE if it would depend on itself, EXISTS if another job owns its unique key.

local AWAITED, FINAL, INDEXED, UNIQUE, action = core.AWAITED, core.FINAL, core.INDEXED, core.UNIQUE, core.action
local add_note, batches = core.add_note, core.batches
local assign_arrival, budgets, check_action = core.assign_arrival, core.budgets, core.check_action
local dependencies = core.dependencies
local change_head, check_queue, collect, failures = core.change_head, core.check_queue, core.collect, core.failures
local emit, flush, has, keep_origin = core.emit, core.flush, core.has, core.keep_origin
local load_job = core.load_job
local reacquire_key, refuse, register_action, register_queue = core.reacquire_key, core.refuse, core.register_action, core.register_queue
local to_waiting, wake_executor = core.to_waiting, core.wake_executor

local WORK_DONE = { ['result-not-stored'] = true, ['result-too-big'] = true, ['step-not-kept'] = true } -- failure groups; see job/outcome.py

function check_action.retry(args)
  if args.queue then check_queue(args.queue) end
  for _, name in ipairs({ 'force', 'from_start' }) do
    if args[name] ~= nil and type(args[name]) ~= 'boolean' then refuse('INVALID', '`' .. name .. '` must be true or false') end
  end
end

-- What earlier attempts saved.
local function forget_saved(id)
  redis.call('HDEL', key.job(id), 'c', 'f')
  redis.call('DEL', key.blob('c', id), key.blob('f', id), key.steps(id))
end

-- An ended job leaves its queue. The move to its new state adds it to the other.
local function change_queue(job, queue)
  local head, from = redis.call('HGET', key.job(job.id), 'h'), job.queue
  keep_origin(job)
  add_note(job, 'M', string.format('from %s to %s', from, queue))
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
  budgets.reset(job)
  redis.call('HDEL', key.job(id), 'r', 'g', 'v', 'y', 'd', 'q')
  redis.call('DEL', key.blob('r', id))
  if args.from_start then forget_saved(id) end
  add_note(job, 'R', args.from_start and 'from the start' or nil)
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
