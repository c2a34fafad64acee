-- renew: extend the leases that a worker's executors hold, and record the worker's heartbeat.
--
--   args.worker     <node>/<worker>
--   args.held       a list of: executor, then its list of id, attempt, id, attempt ...
--   args.started    a list of: executor, id, attempt, process id, milliseconds from claim to start
--   args.about      description of the worker, as text (default: unchanged)
--   args.queues     the queues that it serves, patterns and exclusions (default: unchanged); see queue_sets.lua
--   args.arrivals   the highest arrival number that the worker has seen
--   args.refills    maximum number of schedules to refill (0)
--
-- Errors: INVALID, TOOBIG.
--
-- Each lease is extended by its own length. Returns the key of the worker's inbox, the highest arrival number, and three lists
-- of executor, id, attempt: cancellation requested; lease lost; held in the store but not reported. Then the names of
-- schedules to refill; a number that changes when a job uses an undefined limit for the first time (0: there are none; see
-- limits.lua); and since when the store has its data, which changes when it is emptied, or notices that it lost its last
-- writes.

local MAX_PID, advance, attempt_field = core.MAX_PID, core.advance, core.attempt_field
local check_executor, check_integer, check_list = core.check_executor, core.check_integer, core.check_list
local check_worker, collect, emit_about = core.check_worker, core.collect, core.emit_about
local flush, load_held, pack_hold, pack_run = core.flush, core.load_held, core.pack_hold, core.pack_run
local parse_hold, publish_events, queue_sets = core.parse_hold, core.publish_events, core.queue_sets
local record_pulse = core.record_pulse
local refuse, register, repair, reserve_arrivals = core.refuse, core.register, core.repair, core.reserve_arrivals
local set_marker, set_since, setting, worker_of = core.set_marker, core.set_since, core.setting, core.worker_of
local MAX_BATCH, MAX_DURATION = constants.MAX_BATCH, constants.MAX_DURATION
local MAX_WORKER_INFO = constants.MAX_WORKER_INFO

local CHECKED = 100 -- unreported entries checked per executor

local function check_renew(args)
  check_worker(args.worker)
  queue_sets.check_entries(args.queues and check_list(args.queues, 'queues', 0) or {})
  if args.queues and args.queues[1] then queue_sets.of_list(table.concat(args.queues, ' ')) end
  if #(args.about or '') > MAX_WORKER_INFO then
    refuse('TOOBIG', string.format('`about` is %d bytes (limit %d)', #args.about, MAX_WORKER_INFO))
  end
  local count, started = 0, args.started or {}
  for place = 1, #args.held, 2 do
    local executor = check_executor(args.held[place])
    if worker_of(executor) ~= args.worker then
      refuse('INVALID', executor .. ' does not belong to worker ' .. args.worker)
    end
    count = count + #args.held[place + 1] / 2
    for at = 2, #args.held[place + 1], 2 do check_integer(args.held[place + 1][at], 'the attempt', 0, 2 ^ 31) end
  end
  if count > MAX_BATCH then refuse('INVALID', string.format('%d jobs in one call (limit %d)', count, MAX_BATCH)) end
  for place = 1, #started, 5 do
    check_integer(started[place + 2], 'the attempt', 1, 2 ^ 31)
    check_integer(started[place + 3], 'the process id', 0, MAX_PID)
    check_integer(started[place + 4], 'milliseconds to the start', 0, MAX_DURATION)
  end
end

local function add_three(list, executor, id, attempt)
  list[#list + 1], list[#list + 2], list[#list + 3] = executor, id, attempt
end

-- Returns whether the record contradicts that the executor runs this attempt; and the job, if it does run it. If the
-- record cannot be read, only the hold counts.
local function compare_record(executor, id, attempt)
  local job, _, _, fault = load_held(executor, id, attempt)
  return not job and fault ~= 'NEWER' and fault ~= 'DAMAGED', job
end

-- Drop a wrong hold, and repair the job.
local function drop_hold(executor, id)
  redis.call('HDEL', key.held(executor), id)
  repair(id)
end

-- Returns whether the executor holds the attempt. The record decides, regardless of the hold.
local function renew_one(executor, id, attempt, marks, found)
  local is_over, job = compare_record(executor, id, attempt)
  local holds, cancelling, spared, length = parse_hold(marks)
  local is_right = holds == attempt
  if job and not is_right then holds, cancelling, spared, length = parse_hold(nil, job) end
  if is_over or holds ~= attempt then
    if is_right then drop_hold(executor, id) end
    add_three(found.lost, executor, id, attempt)
    return false
  end
  if cancelling then add_three(found.cancelled, executor, id, attempt) end
  if spared > 0 or not is_right then collect(held_additions, key.held(executor), id, pack_hold(attempt, cancelling, 0, length)) end
  collect(index_additions, key.timers, now + length, id)
  return true
end

-- Find holds that the worker does not report, because the reply of a claim was lost. Some are checked against their
-- records.
local function find_unreported(executor, named, found)
  local held, left = redis.call('HGETALL', key.held(executor)), CHECKED
  for place = 1, math.min(#held, 2 * MAX_BATCH), 2 do
    local id, attempt = held[place], (parse_hold(held[place + 1]))
    if not named[id] then
      local is_over = left > 0 and compare_record(executor, id, attempt)
      left = left - 1
      if is_over then drop_hold(executor, id) else add_three(found.unnamed, executor, id, attempt) end
    end
  end
end

local function renew_executor(executor, held, found)
  local ids, named, count = {}, {}, 0
  for place = 1, #held, 2 do ids[#ids + 1] = held[place] end
  local marks = #ids > 0 and redis.call('HMGET', key.held(executor), unpack(ids)) or {}
  for place, id in ipairs(ids) do
    if renew_one(executor, id, held[2 * place], marks[place], found) and not named[id] then
      named[id], count = true, count + 1
    end
  end
  if redis.call('HLEN', key.held(executor)) > count then find_unreported(executor, named, found) end
end

local function record_starts(started)
  for place = 1, #started, 5 do
    local executor, id, attempt, pid, delay = unpack(started, place, place + 4)
    local job, run = load_held(executor, id, attempt)
    if job then
      redis.call('HSET', key.job(id), attempt_field[attempt], pack_run(run, { pid = pid, started = delay }, run.ran, run.outcome))
    end
  end
end

-- The server lost its last writes: skip the arrival numbers assigned since, and publish it.
local function notice_rewind(args)
  if args.arrivals and args.arrivals > meta.arrivals then
    reserve_arrivals(args.arrivals - meta.arrivals)
    set_since(math.max(now, meta.since + 1))
    emit_about('rewound', args.worker)
  end
end

local function record_heartbeat(args)
  redis.call('ZADD', key.workers(), now, args.worker)
  redis.call('ZREMRANGEBYSCORE', key.workers(), '-inf', now - setting('worker_age'))
  local stored, fields = redis.call('HMGET', key.worker(args.worker), 'queues', 'set'), {}
  local queues = args.queues and table.concat(args.queues, ' ') or stored[1] or ''
  local set = queues ~= '' and queue_sets.of_list(queues) or nil
  if args.about then fields[1], fields[2] = 'about', args.about end
  if args.queues and queues ~= stored[1] then
    fields[#fields + 1], fields[#fields + 2] = 'queues', queues
    fields[#fields + 1], fields[#fields + 2] = 'set', set and set.id or ''
  end
  if fields[1] then redis.call('HSET', key.worker(args.worker), unpack(fields)) end
  queue_sets.record_heartbeat(args.worker, set, stored[2])
  redis.call('PEXPIRE', key.worker(args.worker), setting('worker_age'))
  return set
end

-- Schedules that need more times from the worker.
local function refills(args)
  if not markers.refill or not args.refills then return {} end
  local names = redis.call('SRANDMEMBER', key.refill(), check_integer(args.refills, 'refills', 1, MAX_BATCH))
  if #names == 0 then set_marker('refill', nil) end
  return names
end

core.refills = refills

register('renew', { 'allow-oom' }, function(args)
  check_renew(args)
  record_pulse()
  local found = { cancelled = {}, lost = {}, unnamed = {} }
  for place = 1, #args.held, 2 do renew_executor(args.held[place], args.held[place + 1], found) end
  flush()
  record_starts(args.started or {})
  notice_rewind(args)
  local set = record_heartbeat(args)
  advance(set and args.queues and set.names)
  publish_events(args.worker)
  return { key.inbox(args.worker), meta.arrivals, found.cancelled, found.lost, found.unnamed, refills(args),
    markers.undefined or 0, meta.since }
end)
