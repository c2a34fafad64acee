-- claim: lease the highest-ranked waiting jobs to an executor.
--
--   args.executor   <node>/<worker>.<number>
--   args.counter    increases with each claim of an executor; a repeated claim returns the same jobs
--   args.queues     queue names, highest priority first; or
--   args.pool       the text of a pool, of whose queues the store chooses; see queue_sets.lua
--   args.limit      maximum number of jobs
--   args.shares     maximum per queue in a first round; a second round fills up in the order of `queues`
--   args.weights    fair order: take each job from the queue that has the fewest running jobs in relation to its weight,
--                   counted over all workers; among equals, from the first of `queues`
--   args.lease      lease duration in milliseconds (default: the queue's setting)
--   args.pid        process id of the executor
--   args.idle       true if the executor's last claim returned nothing
--   args.leaves     true if the executor does not wait for work, so it must not be woken
--
-- Errors: INVALID.
--
-- Returns the milliseconds after which to claim again unless woken (0: jobs were found), the key to block on, a list of job
-- kinds, and for each job: id, attempt, created, number of its kind, payload, checkpoint or ''. A kind is: queue, task, codec,
-- timeout (0: none), whether the job must run alone in a process of its own because it may have killed an executor, lease
-- (renew every quarter of it), and run options as text or ''; for a job with marks a list of these options and of its marks, as
-- text: see marks.lua.
--
-- Due timers are processed first. A repeated claim returns those of its jobs that the executor still holds.

local ALONE, DAY, EXTRA, FAIR = core.ALONE, core.DAY, core.EXTRA, core.FAIR
local INDEXED = core.INDEXED
local errors, marks = core.errors, core.marks
local RETRYING, UNIQUE, add_note, advance = core.RETRYING, core.UNIQUE, core.add_note, core.advance
local attempt_field, check_executor, check_integer = core.attempt_field, core.check_executor, core.check_integer
local check_list, check_optional, check_queue = core.check_list, core.check_optional, core.check_queue
local collect, count_wait, deadlines, decimal = core.collect, core.statistics.count_wait, core.deadlines, core.decimal
local emit = core.emit
local fail_job, fair_shares, flush, gate = core.fail_job, core.fair_shares, core.flush, core.gate
local has, limits = core.has, core.limits
local queue_sets = core.queue_sets
local load_blob, load_held, load_scratch_job = core.load_blob, core.load_held, core.load_scratch_job
local loop_despite_errors, move, note_wait, option = core.loop_despite_errors, core.move, core.note_wait, core.option
local pack_attempt, pack_hold, publish_events = core.pack_attempt, core.pack_hold, core.publish_events
local record_pulse, refuse, register, release_key = core.record_pulse, core.refuse, core.register, core.release_key
local repair, setting, wake_executor, with = core.repair, core.setting, core.wake_executor, core.with
local worker_of = core.worker_of
local MAX_BATCH, MAX_IDLE_WAIT, MAX_LEASE = constants.MAX_BATCH, constants.MAX_IDLE_WAIT, constants.MAX_LEASE
local MIN_IDLE_WAIT, MIN_LEASE = constants.MIN_IDLE_WAIT, constants.MIN_LEASE

local MAX_PID = 2 ^ 32 - 1

local MAX_REPLY = 33554432 -- bytes of payloads and checkpoints in one reply
local KIND_SIZE = 7 -- values
local MAX_WEIGHT = 1000000
local PAGE = 100 -- waiting jobs read at once, where some are skipped

local function check_claim(args)
  check_executor(args.executor)
  check_integer(args.counter, 'the counter', 1, 2 ^ 52)
  check_integer(args.limit, 'the limit', 1, MAX_BATCH)
  if args.pool then
    if args.queues or args.shares or args.weights then refuse('INVALID', 'a pool has its own queues, shares and weights') end
    queue_sets.of_pool(args.pool)
  else
    for _, queue in ipairs(check_list(args.queues, 'queues')) do check_queue(queue) end
  end
  for _, share in ipairs(args.shares or {}) do check_integer(share, 'a share', 0, MAX_BATCH) end
  for _, weight in ipairs(args.weights or {}) do check_integer(weight, 'a weight', 1, MAX_WEIGHT) end
  if args.weights and (args.shares or #args.weights ~= #args.queues) then
    refuse('INVALID', 'weights must be as many as queues, and exclude shares')
  end
  check_optional(args.pid, 'the process id', 0, MAX_PID)
  check_optional(args.lease, 'the lease', MIN_LEASE, MAX_LEASE)
end

local function lease_of(queue, args) return args.lease or setting('lease', queue) end

-- Delete attempts beyond the history limit: usually one, more if the limit was lowered.
local function forget_attempts(job)
  local newest = job.attempt - setting('history', job.queue)
  if newest > 0 and has(job.flags, EXTRA) then errors.forget(job.id, newest) end
  for number = newest, 1, -1 do
    local old = decimal[number]
    if redis.call('HDEL', key.job(job.id), 'a' .. old, 'o' .. old) == 0 then return end
  end
end

-- Pack the record of a new attempt. Within a call they differ only in how long the jobs waited.
local function begin_run(got, args, waited)
  local run = got.runs[waited]
  if not run then
    run = pack_attempt(now, waited, 0, 0, args.pid or 0, '-', args.executor)
    got.runs[waited] = run
  end
  return run
end

-- Start an attempt of a waiting job, with a lease of `length` milliseconds.
local function start_attempt(got, job, args, length)
  local flags, attempt, since = job.flags, job.attempt + 1, job.since
  if flags > 0 and has(flags, RETRYING) then job.retries_used, job.flags = job.retries_used + 1, with(flags, RETRYING, false) end
  local waited = now > since and now - since or 0
  job.attempt, job.lease = attempt, length
  move(job, 'running', now, now + length, attempt_field[attempt], begin_run(got, args, waited))
  count_wait(job, waited)
  collect(held_additions, got.held, job.id, pack_hold(attempt, false, 0, length))
  if flags > 0 then
    if has(flags, UNIQUE) then release_key(job, 'q') end
    if has(flags, FAIR) then fair_shares.advance(job) end
  end
  emit('claimed', job)
  if attempt > 1 then forget_attempts(job) end
end

-- The number of the job's kind in the reply. A job that must run alone gets a kind of its own.
local function kind_of(got, job, lease, run, marked)
  local spec, alone = job.spec, job.flags > 0 and has(job.flags, ALONE)
  local known = got.known[spec]
  if not known then
    known = {}
    got.known[spec] = known
  end
  local known_as = marked and run .. '\n' .. marked or run
  local number = not alone and known[known_as]
  if number then return number end
  local kinds = got.kinds
  number = #kinds / KIND_SIZE
  for _, value in ipairs({ job.queue, job.task, spec.codec, option(job, 'timeout'), alone and 1 or 0, lease, marked and { run, marked } or run }) do
    kinds[#kinds + 1] = value
  end
  if not alone then known[known_as] = number end
  return number
end

local function new_reply(executor)
  local kinds = {}
  return { reply = { 0, key.wake(executor), kinds }, kinds = kinds, known = {}, runs = {}, taken = {}, count = 0, bytes = 0,
    parked = 0, mismatched = 0, repaired = 0, held = key.held(executor) }
end

-- Add a claimed job to the reply.
local function describe_claimed(got, job, payload, checkpoint, lease, run)
  checkpoint = checkpoint and load_blob('c', job.id, checkpoint) or ''
  local marked = has(job.flags, INDEXED) and marks.text(job)
  local reply, n = got.reply, #got.reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = job.id, job.attempt, job.created, kind_of(got, job, lease, run or '', marked)
  reply[n + 5], reply[n + 6] = payload, checkpoint
  got.bytes = got.bytes + #payload + #checkpoint
end

-- Ask the gate about a job. If a limit is full, its holders are checked, and the gate is asked again if some were stale.
local function ask_gate(job)
  local why, limit, names, spell = gate.job(job)
  for _ = 1, limits.MAX_CHECKS do
    if why ~= 'limit' or not limits.repair_full(limit) then break end
    why, limit, names, spell = gate.job(job)
  end
  return why, limit, names, spell
end

-- Start a waiting job, unless the gate is closed; then park it, or fail it. Returns whether it started.
local function try_start(job, args, got, length)
  local why, limit, names, spell = ask_gate(job)
  if why == 'deadline' then
    deadlines.miss(job)
  elseif why then
    limits.park(job, limit, names, spell)
  else
    if names then limits.take_slots(names, job.id) end
    start_attempt(got, job, args, length)
    return true
  end
end

-- Start a waiting job; or park it, or fail it. Returns whether it started.
local function start_or_park(job, args, got, length, payload)
  if not payload then
    note_wait(job)
    add_note(job, 'F', 'its payload is missing from the store: enqueue it again', '')
    fail_job(job, 'payload-lost', 'R', nil, {})
  elseif try_start(job, args, got, length) then
    return true
  end
  got.parked = got.parked + 1
  return false
end

-- Claim one job. If its record does not fit the index, it is repaired; an unreadable record is skipped.
local function claim_one(queue, args, got, id)
  local job, payload, run = load_scratch_job(id, 'p', 'x')
  if not job or job.state ~= 'waiting' or job.queue ~= queue then
    got.mismatched = got.mismatched + 1
    if repair(id, key.index[queue].waiting) then got.repaired = got.repaired + 1 else got.skipped = got.skipped + 1 end
    return
  end
  payload = load_blob('p', id, payload)
  -- The first attempt has no checkpoint, unless the job is a fork, which has other keys.
  local may_continue = job.attempt > 0 or (job.flags > 0 and has(job.flags, EXTRA))
  local checkpoint = may_continue and redis.call('HGET', key.job(id), 'c')
  if not start_or_park(job, args, got, got.length, payload) then return end
  local taken, count = got.taken, got.count
  taken[2 * count + 1], taken[2 * count + 2] = id, decimal[job.attempt]
  got.count = count + 1
  describe_claimed(got, job, payload, checkpoint, got.lease, run)
end

-- Claim jobs of one queue until there are `enough`, from the page after the skipped ones.
local function claim_page(queue, args, got, enough)
  local size = got.mismatched > 0 and PAGE or enough - got.count -- mismatches rarely come alone
  local ids, at = redis.call('ZRANGE', key.index[queue].waiting, got.skipped, got.skipped + size - 1), 0
  local function claim_all()
    while at < #ids and got.count < enough and got.bytes < MAX_REPLY do
      at = at + 1
      claim_one(queue, args, got, ids[at])
    end
  end
  loop_despite_errors(claim_all, function()
    got.mismatched = got.mismatched + 1
    if redis.call('ZSCORE', key.index[queue].waiting, ids[at]) then got.skipped = got.skipped + 1 end
  end)
  flush()
end

-- How many more jobs of a queue may start. Stale entries of a full index are repaired, a few per call.
local function room_in(queue)
  local why, room = gate.queue(queue)
  if why ~= 'concurrency' then return room end
  local index = key.index[queue].running
  for _, id in ipairs(redis.call('ZRANDMEMBER', index, limits.HOLDERS_CHECKED)) do
    local job = load_scratch_job(id)
    if not job or job.state ~= 'running' or job.queue ~= queue then repair(id, index) end
  end
  why, room = gate.queue(queue)
  return room
end

-- Claim up to `max` jobs of one queue. Returns whether the claim is complete.
local function claim_from(queue, args, got, max)
  local enough = got.count + math.min(max, room_in(queue))
  got.skipped, got.lease = 0, lease_of(queue, args)
  got.length = got.lease + setting('grace', queue)
  while got.count < enough and got.bytes < MAX_REPLY do
    local passed = got.parked + got.mismatched
    claim_page(queue, args, got, enough)
    if got.parked + got.mismatched == passed or got.parked >= limits.MAX_PARKED or got.mismatched >= MAX_BATCH then break end
  end
  return got.count >= args.limit or got.bytes >= MAX_REPLY or got.parked >= limits.MAX_PARKED
end

-- Milliseconds until the next timer, up to MAX_IDLE_WAIT; or the minimum if work was left for the next call.
local function next_wait()
  if (markers.resolving or markers.changed or markers.surplus) and not call_failed then return MIN_IDLE_WAIT end
  local first = unreadable_timers -- skip those that stay
  local timer = first < MAX_BATCH and redis.call('ZRANGE', key.timers, first, first, 'WITHSCORES') or {}
  local longest = budget.steps > 0 and MAX_IDLE_WAIT or core.operations.PAUSE -- who did a step of an operation does the next, too
  if not timer[1] then return longest end
  return math.max(MIN_IDLE_WAIT, math.min(longest, tonumber(timer[2]) - now))
end

-- Return the jobs of a claim whose reply was lost, if the executor still holds them.
local function repeat_claim(args, line)
  local got = new_reply(args.executor)
  got.reply[1] = line == '' and next_wait() or 0
  for id, attempt in string.gmatch(line, ' (%S+) (%d+)') do
    local job = load_held(args.executor, id, tonumber(attempt))
    if job then
      local blobs = redis.call('HMGET', key.job(id), 'p', 'c', 'x')
      -- The setting may have changed: never report a longer lease than the job has.
      describe_claimed(got, job, load_blob('p', id, blobs[1]) or '', blobs[2], math.min(lease_of(job.queue, args), job.lease), blobs[3])
    end
  end
  return got.reply
end

local function remember_claim(args, taken)
  local worker, number = worker_of(args.executor)
  local line = string.format('%.0f %.0f', args.counter, now)
  if #taken > 0 then line = line .. ' ' .. table.concat(taken, ' ') end
  if redis.call('HSET', key.worker(worker), number, line) == 1 then
    redis.call('PEXPIRE', key.worker(worker), setting('worker_age'))
  end
end

-- The call failed after it had claimed jobs: a repeated claim must return them.
local function remember_failed_claim()
  if claim_in_progress then remember_claim(claim_in_progress.args, claim_in_progress.taken) end
end

local function last_claim(args)
  local worker, number = worker_of(args.executor)
  local line = redis.call('HGET', key.worker(worker), number)
  if not line then return nil end
  local counter, rest = string.match(line, '^(%d+)(.*)$')
  if not counter then return nil end
  return tonumber(counter), (string.gsub(rest, '^ %d+', '', 1))
end

-- The set of queues from which an executor claims.
local function set_of(args)
  if args.pool then return queue_sets.of_pool(args.pool) end
  return queue_sets.of_list(table.concat(args.queues, ' '))
end

local function become_idle(args)
  local set = set_of(args)
  local idle = key.idle(set.id)
  queue_sets.use(set)
  redis.call('ZADD', idle, now, args.executor)
  redis.call('PEXPIRE', idle, DAY)
end

-- Returns the queues for which an executor of a pool was woken.
local function stop_idling(args)
  redis.call('ZREM', key.idle(set_of(args).id), args.executor)
  if args.pool then return redis.call('LPOP', key.wake(args.executor), PAGE) or {} end
  redis.call('DEL', key.wake(args.executor))
  return {}
end

-- The queues that are not paused, and their shares or weights.
local function open_queues(args)
  local numbers = args.shares or args.weights or {}
  local paused, open, chosen = gate.paused(args.queues), {}, {}
  if not paused then return args.queues, numbers end
  for place, queue in ipairs(args.queues) do
    if paused[place] == 0 then
      open[#open + 1] = queue
      chosen[#open] = numbers[place]
    end
  end
  return open, chosen
end

-- Wake another executor for remaining work. An executor that was idle may have been woken for any of its queues, so it
-- passes on wake-ups of queues that it did not get to.
local function pass_on(open, place, was_idle)
  for at = place, was_idle and #open or place do
    if redis.call('ZCARD', key.index[open[at]].waiting) > 0 then wake_executor(open[at]) end
  end
end

-- Claim from all queues in order, and wake others for remaining work. Returns whether the claim is complete.
local function claim_in_order(args, open, got, shares)
  for place, queue in ipairs(open) do
    local left = args.limit - got.count
    local enough = claim_from(queue, args, got, shares and math.min(left, shares[place] or left) or left)
    if enough then
      pass_on(open, args.shares and 1 or place, args.idle or args.shares)
      return true
    end
  end
  return false
end

-- Fair order: a heap of the queues with waiting jobs. The first has the fewest running jobs in relation to its weight.
local function comes_before(one, other)
  if one.load ~= other.load then return one.load < other.load end
  return one.place < other.place
end

local function sink(heap, at)
  local entry = heap[at]
  while true do
    local child = 2 * at
    if child < #heap and comes_before(heap[child + 1], heap[child]) then child = child + 1 end
    if child > #heap or not comes_before(heap[child], entry) then break end
    heap[at], at = heap[child], child
  end
  heap[at] = entry
end

local function remove_first(heap)
  local last = table.remove(heap)
  if #heap == 0 then return end
  heap[1] = last
  sink(heap, 1)
end

local function load_of_queues(open, weights)
  local heap = {}
  for place, queue in ipairs(open) do
    local waiting = redis.call('ZCARD', key.index[queue].waiting)
    if waiting > 0 then
      local running = redis.call('ZCARD', key.index[queue].running)
      heap[#heap + 1] = { queue = queue, place = place, weight = weights[place], waiting = waiting, running = running,
        load = running / weights[place], planned = 0 }
    end
  end
  for at = math.floor(#heap / 2), 1, -1 do sink(heap, at) end
  return heap
end

-- Plan up to `count` jobs, of queues with a load of up to `most`, if given. Returns the queues to take them from, in the
-- order of their first job.
local function plan_fairly(heap, count, most)
  local chosen = {}
  while count > 0 and #heap > 0 do
    local entry = heap[1]
    if most and entry.load > most then break end
    if entry.waiting == 0 or entry.is_exhausted then
      remove_first(heap)
    else
      if entry.planned == 0 then chosen[#chosen + 1] = entry end
      entry.planned, entry.waiting, entry.running = entry.planned + 1, entry.waiting - 1, entry.running + 1
      entry.load, count = entry.running / entry.weight, count - 1
      sink(heap, 1)
    end
  end
  return chosen
end

-- Take the planned jobs. A queue that gives fewer, because of a limit, gets no more. Returns whether the claim is complete.
local function claim_planned(args, got, chosen)
  for _, entry in ipairs(chosen) do
    local before = got.count
    local enough = claim_from(entry.queue, args, got, entry.planned)
    entry.is_exhausted, entry.planned = got.count - before < entry.planned, 0
    if enough then return true end
  end
  return false
end

-- Claim the jobs that one claim after the other from the least loaded queue would, in one step per queue. Wake others
-- for remaining work.
local function claim_fairly(args, open, got, weights)
  local heap = load_of_queues(open, weights)
  while #heap > 0 do
    if claim_planned(args, got, plan_fairly(heap, args.limit - got.count)) then break end
  end
  if got.count < args.limit then return #heap > 0 and pass_on(open, 1, true) end -- the reply is full
  for _, entry in ipairs(heap) do
    if entry.waiting > 0 and not entry.is_exhausted then wake_executor(entry.queue) end
  end
end

-- Returns whether queues were left that another claim has to ask.
local function claim_all(args, got, hints)
  if args.pool then return core.pools.claim(args, got, hints) end
  local open, numbers = open_queues(args)
  if args.weights then
    claim_fairly(args, open, got, numbers)
  elseif not args.shares or not claim_in_order(args, open, got, numbers) then
    claim_in_order(args, open, got)
  end
  return false
end

local function claim(args)
  local counter, line = last_claim(args)
  if counter == args.counter then return repeat_claim(args, line) end
  if counter and counter > args.counter then refuse('INVALID', 'the counter of ' .. args.executor .. ' went back') end
  record_pulse()
  advance(args.queues or set_of(args).names)
  local hints = args.idle and stop_idling(args) or {}
  local got = new_reply(args.executor)
  claim_in_progress = { args = args, taken = got.taken }
  local is_partial = claim_all(args, got, hints)
  remember_claim(args, got.taken)
  claim_in_progress = nil
  if got.count == 0 then
    if not args.leaves then become_idle(args) end
    local is_cut_short = is_partial or got.parked >= limits.MAX_PARKED or got.repaired >= MAX_BATCH -- there may be more behind those
    got.reply[1] = is_cut_short and MIN_IDLE_WAIT or next_wait()
  end
  return got.reply
end

register('claim', { 'allow-oom' }, function(args)
  check_claim(args)
  local reply = claim(args)
  publish_events(args.executor)
  return reply
end)

core.MAX_PID, core.claim, core.check_claim = MAX_PID, claim, check_claim
core.claiming = { claim_from = claim_from, plan_fairly = plan_fairly, sink = sink }
core.remember_failed_claim = remember_failed_claim
