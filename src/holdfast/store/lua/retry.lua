-- retry: run ended jobs again, with all their budgets as new. Checkpoint, history and attempt numbers go on.
--
--   args.ids     up to 1,000
--   args.force   also those whose work was done, and only could not be recorded: it is done again
--   args.token   see call.lua; not given: the call may be carried out twice
--
-- Returns an answer per id: waiting, blocked, NOTFOUND, NEWER, DAMAGED, STATE if it has not ended, DONE if its work was done and
-- `force` is not given, CYCLE if it would wait for itself, or EXISTS if another job has its unique key now.

local event, refuse = core.event, core.refuse
local AWAITED, FINAL, UNIQUE, has, lasting = core.AWAITED, core.FINAL, core.UNIQUE, core.has, core.lasting
local load_job, note = core.load_job, core.note
local take_key_again = core.take_key_again
local settle, to_waiting = core.settle, core.to_waiting
local arrive = core.arrive
local wake = core.wake
local after = core.after
local action, check_action, verb_on_each = core.action, core.check_action, core.verb_on_each

local WORK_DONE = { ['result-not-stored'] = true, ['result-too-big'] = true, ['step-not-kept'] = true } -- groups

function check_action.retry(args)
  if args.force ~= nil and type(args.force) ~= 'boolean' then refuse('INVALID', '`force` must be true or false') end
end

function action.retry(id, args)
  local job, field, group = load_job(id, 'b', 'g')
  if not job then return field end -- NOTFOUND, NEWER or DAMAGED
  if not FINAL[job.state] then return 'STATE' end
  if WORK_DONE[group] and not args.force then return 'DONE' end
  if field and after.is_cycle(id, redis.call('HKEYS', key.after(id))) ~= false then return 'CYCLE' end
  if has(job.flags, UNIQUE) and take_key_again(job) then return 'EXISTS' end
  arrive(job)
  job.retries_used, job.crashes_used, job.lost_used, job.misses, job.flags = 0, 0, 0, 0, lasting(job.flags)
  redis.call('HDEL', key.job(id), 'r', 'g', 'y', 'd')
  redis.call('DEL', key.blob('r', id))
  note(job, 'R')
  local is_blocked = field and after.link_again(job, field) > 0
  if is_blocked then after.to_blocked(job) else to_waiting(job) end
  if has(job.flags, AWAITED) then resolved[#resolved + 1] = { id, '-', '-inf' } end
  event('retried', id)
  settle()
  if is_blocked then return 'blocked' end
  wake(job.queue)
  return 'waiting'
end

verb_on_each('retry', { 'allow-oom' })
