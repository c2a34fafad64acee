-- cancel: prevent jobs from starting, and request running ones to stop.
--
--   args.ids              up to 1,000
--   args.reason           text
--   args.dependents       also cancel all direct and indirect dependents, up to 1,000 in total
--   args.unless_awaited   skip jobs that have dependents, unless these are cancelled by the same call
--   args.token            see call.lua (default: the call may run twice)
--
-- Errors: INVALID, TOOBIG if there are too many dependents. A running job stays running, flagged as cancelling, until its worker
-- has stopped it; a success that arrives first wins. Returns an answer per id: cancelled, cancelling, NOTFOUND, NEWER,
-- DAMAGED, STATE if it has ended, BLOCKED if `unless_awaited` applies; then the id and answer of each dependent.

local CANCELLING, FINAL, INLINE, NO_EXECUTOR = core.CANCELLING, core.FINAL, core.INLINE, core.NO_EXECUTOR
local action, emit, truncate = core.action, core.emit, core.truncate
local add_note, apply_to_each, check_action = core.add_note, core.apply_to_each, core.check_action
local check_ids, check_reason, current_attempt = core.check_ids, core.check_reason, core.current_attempt
local finish_job, has, load_job, note_wait = core.finish_job, core.has, core.load_job, core.note_wait
local pack_hold, pack_status, parse_hold = core.pack_hold, core.pack_status, core.parse_hold
local publish_events, refuse, register = core.publish_events, core.refuse, core.register
local send_message, with = core.send_message, core.with
local worker_of = core.worker_of
local MAX_BATCH, MAX_DEPENDENCIES = constants.MAX_BATCH, constants.MAX_DEPENDENCIES

local function cancel_running(job, reason)
  if has(job.flags, CANCELLING) then return 'cancelling' end
  job.flags = with(job.flags, CANCELLING, true)
  add_note(job, 'c', reason)
  redis.call('HSET', key.job(job.id), 's', pack_status(job), 'q', truncate((caller or '') .. ' ' .. (reason or ''), INLINE))
  emit('cancelling', job, reason and truncate(reason, INLINE))
  local run = current_attempt(job)
  if run.executor == NO_EXECUTOR then return 'cancelling' end -- it ends with its lease
  local _, _, spared, length = parse_hold(redis.call('HGET', key.held(run.executor), job.id), job)
  redis.call('HSET', key.held(run.executor), job.id, pack_hold(job.attempt, true, spared, length))
  send_message(worker_of(run.executor), string.format('cancel %s %s %d', run.executor, job.id, job.attempt))
  return 'cancelling'
end

function check_action.cancel(args)
  if args.unless_awaited then refuse('INVALID', '`unless_awaited` requires `ids`') end
  args.awaited = nil
  check_reason(args)
end

function action.cancel(id, args)
  local job, waiters = load_job(id, 'w')
  if not job then return waiters end -- NOTFOUND, NEWER or DAMAGED
  if FINAL[job.state] then return 'STATE' end
  if args.awaited and args.awaited[id] then return 'BLOCKED' end
  if job.state == 'running' then return cancel_running(job, args.reason) end
  note_wait(job)
  add_note(job, 'C', args.reason)
  finish_job(job, 'cancelled', waiters or '', nil, args.reason and { '', truncate(args.reason, INLINE) })
  return 'cancelled'
end

-- All direct and indirect dependents, nearest first.
local function find_dependents(ids)
  local seen, queue, at = {}, {}, 1
  for _, id in ipairs(ids) do seen[id], queue[#queue + 1] = true, id end
  while at <= #queue do
    for _, id in ipairs(redis.call('ZRANGE', key.dependents(queue[at]), 0, MAX_BATCH)) do
      if not seen[id] then seen[id], queue[#queue + 1] = true, id end
    end
    if #queue > MAX_BATCH then
      refuse('TOOBIG', string.format('these jobs have more than %d dependents: cancel them in parts', MAX_BATCH))
    end
    at = at + 1
  end
  local found = {}
  for place = #ids + 1, #queue do found[#found + 1] = queue[place] end
  return found
end

-- Whether an indexed dependent really waits. An unreadable one may.
local function waits(id)
  local job, fault = load_job(id)
  if job then return job.state == 'blocked' end
  return fault ~= 'NOTFOUND'
end

-- Record the edges from a job to its dependents, until one is found that is not being cancelled. Returns whether there
-- is one, and the number of edges.
local function awaited_by_others(id, named, before)
  local first = 0
  while true do
    local part = redis.call('ZRANGE', key.dependents(id), first, first + 9)
    for _, dependent in ipairs(part) do
      if not named[dependent] and waits(dependent) then return true, first end
      before[dependent] = before[dependent] or {}
      before[dependent][#before[dependent] + 1] = id
    end
    first = first + #part
    if #part < 10 or first > MAX_DEPENDENCIES then return false, first end
  end
end

-- Jobs with dependents outside of `ids`, and those that depend on them.
local function find_awaited(ids)
  local named, found, list, before, looked_at = {}, {}, {}, {}, 0
  for _, id in ipairs(ids) do named[id] = load_job(id) and true end -- unreadable jobs are not cancelled
  for id in pairs(named) do
    local is_awaited, edges = awaited_by_others(id, named, before)
    if is_awaited then found[id], list[#list + 1] = true, id end
    looked_at = looked_at + edges
    if looked_at > MAX_DEPENDENCIES then
      refuse('TOOBIG', 'these jobs have too many dependents: cancel them in parts')
    end
  end
  local at = 1
  while at <= #list do
    for _, id in ipairs(before[list[at]] or {}) do
      if not found[id] then found[id], list[#list + 1] = true, id end
    end
    at = at + 1
  end
  return found
end

local function check_cancel(args)
  if args.dependents and args.unless_awaited then
    refuse('INVALID', '`dependents` and `unless_awaited` are mutually exclusive: the first cancels all dependents')
  end
  check_reason(args)
end

register('cancel', { 'allow-oom' }, function(args)
  local ids = check_ids(args.ids)
  check_cancel(args)
  local dependents = args.dependents and find_dependents(ids) or {}
  args.awaited = args.unless_awaited and find_awaited(ids) or nil
  local answers, is_unchanged = apply_to_each('cancel', args, ids)
  for place, answer in ipairs((apply_to_each('cancel', args, dependents))) do
    -- Its own policy may have cancelled it together with its dependency.
    answers[#answers + 1], answers[#answers + 2] = dependents[place], answer == 'STATE' and 'cancelled' or answer
  end
  publish_events()
  return answers, is_unchanged and #dependents == 0
end)
