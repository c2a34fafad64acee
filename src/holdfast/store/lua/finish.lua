-- finish: end attempts, each with its outcome, and claim in the same call.
--
--   args.executor   the executor of the attempts
--   args.items      a list of objects. A plain success may be five values instead: id, attempt, created, pid, started. An
--                   object has
--     id, attempt   the attempt
--     created       when the job was created, according to its claim
--     outcome       succeed (blob: the result; note: an entry for the history)
--                   error (blob: description; fingerprint, type, place, traceback, revision: see fingerprints.lua; group;
--                   final: do not retry, true if the task declared it, 'refused' if its result was refused, or
--                   'not_retryable' by its retry policy; delay, waits, cap, spread: see backoff.lua)
--                   crash (blob: description; fingerprint, type, place, traceback, revision: as of an error)
--                   release (delay; reason; unstarted: it certainly did not start), snooze (delay)
--                   unknown (this worker does not have the task), cancelled
--                   wait (block until the jobs `after` have ended, with any outcome)
--                   advance (continue as another call; `next`: a batch as in enqueue.lua, without ids and unique keys; queue,
--                   task, share, tags and scope are kept unless given, the unique key and `keep` always; `fields` are added
--                   to those that the job has, and with `keep_tags` its tags too; blob: the new payload)
--     blob          true if the item has a blob; traceback: true if another blob follows, the traceback of its error
--     pid, started  process id, and milliseconds from claim to start
--   args.claim      arguments of claim, without the executor (default: do not claim)
--   args.token      see call.lua; repeated calls are then recognised by the token only, even for jobs that are not kept
--   blobs           in the order of the items
--
-- Errors: INVALID. Items are independent of each other. Returns two lists: an answer per item (OK; LOST: the lease is lost;
-- NEWER, DAMAGED: the record cannot be read or written; TOOBIG: the result is too long, nothing was changed; INVALID; CYCLE:
-- the job would depend on itself; NOTFOUND: a dependency does not exist), and the reply of claim.

local AFTER, ALONE, AT_MOST_ONCE, CANCELLING = core.AFTER, core.ALONE, core.AT_MOST_ONCE, core.CANCELLING
local FINAL, INLINE, LIMITED, MAX_PID = core.FINAL, core.INLINE, core.LIMITED, core.MAX_PID
local SECOND, add_note, assign_arrival, budgets = core.SECOND, core.add_note, core.assign_arrival, core.budgets
local charge_crash, check_after, check_backoff = core.charge_crash, core.check_after, core.check_backoff
local check_batch = core.check_batch
local check_claim, check_distinct_ids, check_executor = core.check_claim, core.check_distinct_ids, core.check_executor
local clean_group, errors, fingerprints = core.failures.clean_group, core.errors, core.fingerprints
local claim, collect, count_retry = core.claim, core.collect, core.statistics.count_retry
local deadlines, decimal = core.deadlines, core.decimal
local dependencies, drop_deadline, due_time, emit = core.dependencies, core.drop_deadline, core.due_time, core.emit
local end_attempt, fail_job, finish_job, flush = core.end_attempt, core.fail_job, core.finish_job, core.flush
local has, keep_origin = core.has, core.keep_origin
local load_blob, load_held, load_job = core.load_blob, core.load_held, core.load_job
local leave_running, loop_despite_errors = core.leave_running, core.loop_despite_errors
local marks, own_fields = core.marks, core.own_fields
local pack_head = core.pack_head
local pack_spec, prune, publish_events = core.pack_spec, core.prune, core.publish_events
local refuse, register, register_queue, requeue = core.refuse, core.register, core.register_queue, core.requeue
local reserve_arrivals, retry_delay, store_blob = core.reserve_arrivals, core.retry_delay, core.store_blob
local to_scheduled, to_waiting, truncate, wake_executor = core.to_scheduled, core.to_waiting, core.truncate, core.wake_executor
local wake_later, with, worker_of = core.wake_later, core.with, core.worker_of
local MAX_BATCH, MAX_DURATION, MAX_ERROR = constants.MAX_BATCH, constants.MAX_DURATION, constants.MAX_ERROR
local MAX_RESULT = constants.MAX_RESULT

local SUCCESS, SUCCESS_SIZE = { outcome = 'succeed', blob = true }, 5 -- the item of a plain success, reused
local MIN_UNKNOWN_DELAY, MAX_UNKNOWN_DELAY = 5 * SECOND, 60 * SECOND
local WAITING_REASON = 'waits for other jobs'

-- An error description that is too long is dropped: truncated, it could not be decoded.
local function storable(blob) return blob and #blob <= MAX_ERROR and blob or nil end

-- Record the error of an attempt. Returns its fingerprint.
local function record_error(job, item, group, blob, traceback)
  local fingerprint = fingerprints.count(job, item, group, blob, traceback)
  if storable(blob) then errors.add(job, fingerprint, blob) end
  return fingerprint
end

local STOPPED = { timeout = true, stalled = true } -- failure groups of attempts that a worker stopped; see job/outcome.py
local WHY_OF_FINAL = { [true] = 'D', refused = 'R', not_retryable = 'N' }
local outcomes = {}

function outcomes.succeed(job, run, item, blob, waiters)
  local fields = end_attempt(job, run, 'S', nil, item)
  if item.note then add_note(job, 'n', item.note) end
  fields[3], fields[4] = 'r', store_blob('r', job.id, blob or '')
  finish_job(job, 'succeeded', waiters, fields)
end

function outcomes.error(job, run, item, blob, waiters, traceback)
  local fields, group = end_attempt(job, run, 'E', item.reason, item), clean_group(item.group or '')
  local fingerprint = record_error(job, item, group, blob, traceback)
  if STOPPED[item.group] then emit(item.group, job) end
  if has(job.flags, CANCELLING) then return finish_job(job, 'cancelled', waiters, fields) end
  local used = budgets.charge(job, group)
  local why = WHY_OF_FINAL[item.final] or (has(job.flags, AT_MOST_ONCE) and 'O') or (not used and 'E')
  if why then return fail_job(job, group, why, waiters, fields, fingerprint) end
  local delay = retry_delay(job, item, used)
  emit('retried', job)
  count_retry(job)
  if delay > 0 then return to_scheduled(job, now + delay, fields) end
  assign_arrival(job)
  to_waiting(job, fields)
end

function outcomes.crash(job, run, item, blob, waiters, traceback)
  local fingerprint = record_error(job, item, 'crashed', blob, traceback)
  charge_crash(job, waiters, end_attempt(job, run, 'K', item.reason, item), fingerprint)
end

function outcomes.release(job, run, item)
  emit('released', job)
  requeue(job, item.delay or 0, end_attempt(job, run, 'R', item.reason, item), item.unstarted)
end

function outcomes.snooze(job, run, item)
  emit('released', job)
  requeue(job, item.delay or 0, end_attempt(job, run, 'Z', item.reason, item))
end

function outcomes.unknown(job, run, item)
  local fields = end_attempt(job, run, 'U', 'task ' .. job.task .. ' is not known here', item)
  local delay = math.min(MIN_UNKNOWN_DELAY * 2 ^ job.misses, MAX_UNKNOWN_DELAY)
  job.misses = math.min(job.misses + 1, 10)
  emit('released', job)
  requeue(job, delay, fields, true)
end

function outcomes.cancelled(job, run, item, blob, waiters)
  local fields = end_attempt(job, run, 'C', item.reason, item)
  if has(job.flags, CANCELLING) then return finish_job(job, 'cancelled', waiters, fields) end
  emit('released', job)
  requeue(job, 0, fields)
end

-- Rewrite the record of a job that advances to another call; adds to the fields to write.
local function rewrite_record(job, batch, blob, fields)
  local function set(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end
  set('h', pack_head(job.created, pack_spec(batch)))
  if blob then
    redis.call('DEL', key.blob('p', job.id))
    set('p', store_blob('p', job.id, blob))
  end
  redis.call('HDEL', key.job(job.id), 'c', 'f', 'l', 'b', 'd', 'x')
  redis.call('DEL', key.blob('c', job.id), key.blob('f', job.id), key.after(job.id), key.steps(job.id))
  if batch.run then set('x', batch.run) end
  if batch.limits then set('l', table.concat(batch.limits, ' ')) end
  if batch.share then set('i', batch.share) end
  drop_deadline(job)
  budgets.reset(job)
  job.flags = with(with(job.flags, LIMITED, batch.limits ~= nil), AFTER, batch.after ~= nil)
  job.flags = with(job.flags, AT_MOST_ONCE, batch.at_most_once == true)
  job.queue, job.task, job.priority, job.state = batch.queue, batch.task, batch.priority or 0, nil
  return set
end

-- The call of an attempt that ends with another call. A truncated name would be that of another task or queue, so long ones are
-- left out: the task, or both.
local function describe_stage(job)
  local queue = 'queue ' .. job.queue
  local text = 'task ' .. job.task .. ' in ' .. queue
  return #text <= INLINE and text or #queue <= INLINE and queue or ''
end

-- Advance to another call: counters and checkpoint are reset, the history is kept.
function outcomes.advance(job, run, item, blob)
  local fields, batch = end_attempt(job, run, 'A', describe_stage(job), item), item.next
  if has(job.flags, CANCELLING) then return finish_job(job, 'cancelled', nil, fields) end
  collect(index_removals, key.index[job.queue].running, job.id)
  collect(index_removals, key.timers, job.id)
  if markers.pools then leave_running(job.queue) end
  local queue, task = job.queue, job.task
  keep_origin(job)
  local set, left = rewrite_record(job, batch, blob, fields), 0
  register_queue(job.queue)
  emit('advanced', job, { queue, job.queue, task, job.task })
  if item.fields then own_fields.change(job, item.fields, {}) end
  if item.marks then marks.change(job, marks.of(job), item.marks) end
  assign_arrival(job, batch.share)
  batch.due_time = due_time(batch)
  if batch.after then
    local field, is_doomed
    field, left, is_doomed = dependencies.add(batch, job.id, reserve_arrivals(1) + 1, item.known)
    set('b', field)
    if is_doomed then return dependencies.cancel_doomed(job, fields) end
  end
  local deadline_at = deadlines.set(job, batch)
  if deadline_at then set('d', deadline_at) end
  if left > 0 then return dependencies.to_blocked(job, fields) end
  if batch.due_time then return to_scheduled(job, batch.due_time, fields) end
  to_waiting(job, fields)
  wake_later(job.queue)
end

-- Block the job on others, which it may have enqueued itself. It holds no slot meanwhile.
function outcomes.wait(job, run, item)
  local fields = end_attempt(job, run, 'Z', WAITING_REASON, item)
  emit('released', job)
  if has(job.flags, CANCELLING) or has(job.flags, AT_MOST_ONCE) then return requeue(job, 0, fields) end
  local field, left = dependencies.wait_while_running(job, item.after)
  job.flags = with(job.flags, AFTER, true)
  fields[#fields + 1], fields[#fields + 2] = 'b', field
  if left > 0 then dependencies.to_blocked(job, fields) else to_waiting(job, fields) end
end

local LETTER_OF_OUTCOME = {
  succeed = 'S', error = 'E', crash = 'K', release = 'R', snooze = 'Z', wait = 'Z', advance = 'A', unknown = 'U',
  cancelled = 'C',
}

-- Optional values may be nil.
local function is_text(value) return value == nil or type(value) == 'string' end

-- Run a check for one item. Returns the code of its refusal, or nil.
local function refusal_of(check, ...)
  local done, reply = pcall(check, ...)
  if done then return nil end
  if type(reply) ~= 'table' then error(reply, 0) end
  return string.match(reply.refusal, '^%u+')
end

local function check_next(item, job, blob)
  local batch = type(item.next) == 'table' and item.next or refuse('INVALID', '`next` must be an object')
  if blob and #blob > constants.MAX_PAYLOAD then
    refuse('TOOBIG', string.format('the payload of job %s is %d bytes (limit %d)', item.id, #blob, constants.MAX_PAYLOAD))
  end
  if batch.unique then refuse('INVALID', '`next` cannot change the unique key') end
  batch.ids, batch.queue, batch.task = { item.id }, batch.queue or job.queue, batch.task or job.task
  batch.codec = batch.codec or job.spec.codec
  check_batch(batch)
  if batch.fields then
    item.fields = own_fields.check(batch.fields, 'fields')
    own_fields.check_number(item.id, item.fields, {})
  end
  if batch.tags or batch.scope then
    item.marks = marks.after_stage(marks.of(job), batch) or refuse('INVALID', 'the job would have too many tags')
  end
  item.known = batch.after and check_after({ batches = { batch } }, {}, {}) or {}
  if batch.after and dependencies.is_cycle(item.id, batch.after) ~= false then
    refuse('CYCLE', 'the job would wait for itself')
  end
end

local function check_wait(item)
  check_distinct_ids(item.after, 'after')
  if dependencies.is_cycle(item.id, item.after) ~= false then refuse('CYCLE', 'the job would wait for itself') end
end

local checks = { advance = check_next, wait = check_wait } -- of existing jobs

-- Raises for values of another type, which cannot be compared.
local function is_valid(id, attempt, pid, started)
  return id > '' and attempt % 1 == 0 and attempt >= 0 and attempt <= 2 ^ 31
    and (pid == nil or pid % 1 == 0 and pid >= 0 and pid <= MAX_PID)
    and (started == nil or started % 1 == 0 and started >= 0 and started <= MAX_DURATION)
end

local function is_valid_error(item, traceback)
  local revision = item.revision
  return is_text(item.fingerprint) and is_text(item.type) and is_text(item.place) and (traceback or not item.traceback)
    and (revision == nil or type(revision) == 'number' and revision % 1 == 0 and revision >= 0 and revision <= 2 ^ 52)
end

-- Returns the code to refuse an item with, or nil.
local function invalid_code(item, blob, traceback)
  local done, right = pcall(is_valid, item.id, item.attempt, item.pid, item.started)
  right = done and right and outcomes[item.outcome] and (blob or not item.blob)
  if right and item ~= SUCCESS then
    right = check_backoff(item) and is_text(item.group) and is_text(item.reason) and is_text(item.note)
      and (not item.final or WHY_OF_FINAL[item.final]) and is_valid_error(item, traceback)
  end
  if not right then return 'INVALID' end
  if blob and item.outcome == 'succeed' and #blob > MAX_RESULT then return 'TOOBIG' end
end

local ERROR_REASONS = { E = true, D = true, R = true, N = true, O = true } -- letters of WHY_FINAL

-- Whether an error has the same group and finality, as far as the job's record still shows.
local function is_same_error(item)
  local job, group, why = load_job(item.id, 'g', 'y')
  if not job or job.attempt ~= item.attempt or job.state == 'cancelled' then return true end
  if job.state ~= 'failed' then return not item.final end
  if not ERROR_REASONS[why] then return true end
  local is_as_final = why == (WHY_OF_FINAL[item.final] or why == 'O' and 'O' or 'E')
  return is_as_final and group == clean_group(item.group or '')
end

-- Whether the attempt already ended in exactly this way, so that this is a repeated call.
local function is_repeated(run, item, blob)
  local letter, number = LETTER_OF_OUTCOME[item.outcome], decimal[item.attempt]
  if run.outcome ~= letter then return false end
  if letter == 'S' then
    local job, result = load_job(item.id, 'r')
    return job and job.state == 'succeeded' and load_blob('r', item.id, result) == (blob or '')
  end
  local reason = item.reason or item.outcome == 'wait' and WAITING_REASON or ''
  local kept = redis.call('HGET', key.job(item.id), 'o' .. number) or ''
  if letter ~= 'U' and letter ~= 'A' and kept ~= truncate(reason, INLINE) then return false end
  if letter ~= 'E' and letter ~= 'K' then return true end
  if letter == 'E' and not is_same_error(item) then return false end
  local fingerprint, description = errors.find(item.id, item.attempt)
  if description ~= storable(blob) then return false end
  return not fingerprint or (item.fingerprint or '') == '' or fingerprint == fingerprints.name(item)
end

-- Whether the attempt proved that its job need not run alone: it ran, and its process survived.
local function has_survived(outcome, item)
  return outcome ~= 'crash' and outcome ~= 'unknown' and not (outcome == 'release' and item.unstarted)
end

local function finish_one(args, item, blob, traceback)
  local code = invalid_code(item, blob, traceback)
  if code then return code end
  local outcome = item.outcome
  local job, run, waiters, fault = load_held(args.executor, item.id, item.attempt, item.created)
  if not job then
    if fault == 'NOTFOUND' then collect(held_removals, key.held(args.executor), item.id) end
    if fault == 'NEWER' or fault == 'DAMAGED' then return fault end
    return run and not args.token and is_repeated(run, item, blob) and 'OK' or 'LOST'
  end
  if checks[outcome] then code = refusal_of(checks[outcome], item, job, blob) end
  if code then return code end
  if outcome ~= 'unknown' then job.misses = 0 end
  if job.flags > 0 and has_survived(outcome, item) then job.flags = with(job.flags, ALONE, false) end
  outcomes[outcome](job, run, item, blob, waiters, traceback)
  return 'OK'
end

-- Numbers of jobs that enter a state, by `queue state`. Call it before flushing.
local function entering_states()
  local numbers = {}
  for _, where in ipairs(index_additions) do
    local queue, state = string.match(where, '^[^}]*}:q:(.+):(%a+)$')
    if state then numbers[queue .. ' ' .. state] = #index_additions[where] / 2 end
  end
  return numbers
end

-- Prune one job more than were added, so that retention keeps up at any rate.
local function prune_after_finish(entered)
  for where, count in pairs(entered) do
    local queue, state = string.match(where, '^(%S+) (%S+)$')
    if FINAL[state] then prune(queue, state, count + 1) end
  end
  flush()
end

-- Wake others for requeued jobs, unless the same call claimed them. An executor that does not claim is busy or about to
-- stop, and perhaps so is its worker.
local function wake_after_finish(entered, args)
  local last = not args.claim and worker_of(args.executor) or nil
  for where in pairs(entered) do
    local queue, state = string.match(where, '^(%S+) (%S+)$')
    if state == 'waiting' and redis.call('ZCARD', key.index[queue][state]) > 0 then wake_executor(queue, last) end
  end
end

-- Returns the answers, and how many jobs entered each state.
local function finish(args, blobs)
  local items, answers, next_blob, at = args.items, {}, 2, 1
  local size, count = #items, 0
  loop_despite_errors(function()
    while at <= size do
      local item, blob, traceback = items[at], nil, nil
      if type(item) ~= 'table' then
        SUCCESS.id, SUCCESS.attempt, SUCCESS.created = item, items[at + 1], items[at + 2]
        SUCCESS.pid, SUCCESS.started = items[at + 3], items[at + 4]
        item, at = SUCCESS, at + SUCCESS_SIZE - 1
      end
      at, count = at + 1, count + 1
      if item.blob then blob, next_blob = blobs[next_blob], next_blob + 1 end
      if item.traceback then traceback, next_blob = blobs[next_blob], next_blob + 1 end
      answers[count] = finish_one(args, item, blob, traceback)
    end
  end, function() answers[count] = 'DAMAGED' end)
  local entered = entering_states()
  flush()
  prune_after_finish(entered)
  return answers, entered
end

local function check_finish(args)
  check_executor(args.executor)
  local count, at = 0, 1
  local size = type(args.items) == 'table' and #args.items or -1
  while at <= size do
    count, at = count + 1, at + (type(args.items[at]) == 'table' and 1 or SUCCESS_SIZE)
  end
  if count > MAX_BATCH or at ~= size + 1 then
    refuse('INVALID', string.format('items must be a list of up to %d, each an object or %d values', MAX_BATCH, SUCCESS_SIZE))
  end
  if args.claim then
    args.claim.executor = args.executor
    check_claim(args.claim)
  end
end

register('finish', { 'allow-oom' }, function(args, blobs)
  check_finish(args)
  local answers, entered = finish(args, blobs)
  local reply = { answers, args.claim and claim(args.claim) or {} }
  wake_after_finish(entered, args)
  publish_events(args.executor)
  return reply
end)

-- End items inside another function.
local function finish_items(args, blobs)
  check_finish(args)
  local answers, entered = finish(args, blobs)
  wake_after_finish(entered, args)
  return answers
end

core.finish_items = finish_items
