-- claim: hand the best waiting jobs to an executor, under a lease.
--
--   args.executor   <node>/<worker>.<number>
--   args.counter    rises with each claim of an executor; a repeated claim gets the same jobs again
--   args.queues     names, most urgent first
--   args.limit      how many jobs at most
--   args.lease      milliseconds until the lease ends (30 s)
--   args.pid        process id of the executor
--   args.idle       the executor's last claim found nothing
--
-- Returns the milliseconds after which to claim again if nothing wakes the executor (0: jobs were found), the key on
-- which to wait for that, and then for each job: id, attempt, queue, task, codec, payload, checkpoint or '', timeout
-- (0: none), created, whether it must run alone, that is in a process of its own: it may have killed an executor.
--
-- A repeated claim gets those of its jobs that the executor still holds.

local MOST_BYTES = 33554432 -- of payloads and checkpoints, in one reply
local MOST_PID = 2 ^ 32 - 1
local WORKER_LIFE = DAY

local function check_claim(args)
  executor_name(args.executor)
  integer(args.counter, 'the counter', 1, 2 ^ 52)
  integer(args.limit, 'the limit', 1, MOST)
  for _, queue in ipairs(list_of(args.queues, 'queues')) do queue_name(queue) end
  optional(args.pid, 'the process id', 0, MOST_PID)
  args.lease = integer(args.lease or DEFAULT.lease, 'the lease', LEAST_LEASE, MOST_LEASE)
end

-- Start an attempt of a waiting job.
local function start_attempt(job, args)
  job.attempt, job.lease = job.attempt + 1, args.lease
  if has(job.flags, RETRYING) then job.retried = job.retried + 1 end
  job.flags = with(job.flags, RETRYING, false)
  local number = string.format('%d', job.attempt)
  local run = { claimed = now, waited = math.max(now - job.since, 0), delay = 0, ran = 0, pid = args.pid or 0,
    outcome = '-', executor = args.executor }
  move(job, 'running', now, now + args.lease, { 'a' .. number, pack_attempt(run) })
  collect(holding, key.held(args.executor), job.id, number)
  event('claimed', job.id)
  if job.attempt > HISTORY then
    local old = string.format('%d', job.attempt - HISTORY)
    redis.call('HDEL', key.job(job.id), 'a' .. old, 'o' .. old)
    redis.call('HDEL', key.errors(job.id), old)
  end
end

-- Add a claimed job to a reply: returns the bytes of its payload and checkpoint.
local function describe_claimed(reply, job, payload, checkpoint)
  payload = load_blob('p', job.id, payload)
  checkpoint = checkpoint and load_blob('c', job.id, checkpoint) or ''
  for _, value in ipairs({ job.id, job.attempt, job.queue, job.task, job.codec, payload, checkpoint, job.timeout,
    job.created, has(job.flags, ALONE) and 1 or 0 }) do
    reply[#reply + 1] = value
  end
  return #payload + #checkpoint
end

-- Take jobs of one queue: returns the bytes of the reply so far, and whether the executor is to be given no more.
local function take(queue, args, reply, taken, bytes)
  for _, id in ipairs(redis.call('ZRANGE', key.index(queue, 'waiting'), 0, args.limit - #taken - 1)) do
    local job, payload, checkpoint = load_job(id, 'p', 'c')
    start_attempt(job, args)
    bytes = bytes + describe_claimed(reply, job, payload, checkpoint)
    taken[#taken + 1] = id .. ' ' .. string.format('%d', job.attempt)
    if bytes >= MOST_BYTES then return bytes, true end
  end
  return bytes, #taken >= args.limit
end

-- Until the next timer, or as long as an executor blocks at most.
local function next_wait()
  local timer = redis.call('ZRANGE', key.timers(), 0, 0, 'WITHSCORES')
  if not timer[1] then return BLOCK end
  return math.max(1, math.min(BLOCK, tonumber(timer[2]) - now))
end

-- The jobs of a claim whose reply was lost, as far as the executor still holds them.
local function repeat_claim(args, line)
  local reply = { line == '' and next_wait() or 0, key.wake(args.executor) }
  for id, attempt in string.gmatch(line, ' (%S+) (%d+)') do
    local job = holder(args.executor, id, tonumber(attempt))
    if job then
      local blobs = redis.call('HMGET', key.job(id), 'p', 'c')
      describe_claimed(reply, job, blobs[1], blobs[2])
    end
  end
  return reply
end

local function remember_claim(args, taken)
  local worker, number = worker_of(args.executor)
  local line = string.format('%.0f %.0f', args.counter, now)
  if #taken > 0 then line = line .. ' ' .. table.concat(taken, ' ') end
  if redis.call('HSET', key.worker(worker), number, line) == 1 then
    redis.call('PEXPIRE', key.worker(worker), WORKER_LIFE)
  end
end

local function last_claim(args)
  local worker, number = worker_of(args.executor)
  local line = redis.call('HGET', key.worker(worker), number)
  if not line then return nil end
  local counter, rest = string.match(line, '^(%d+)(.*)$')
  return tonumber(counter), (string.gsub(rest, '^ %d+', '', 1))
end

local function become_idle(args)
  for _, queue in ipairs(args.queues) do
    redis.call('ZREMRANGEBYSCORE', key.idle(queue), '-inf', now - STALE)
    redis.call('ZADD', key.idle(queue), now, args.executor)
  end
end

local function stop_idling(args)
  for _, queue in ipairs(args.queues) do redis.call('ZREM', key.idle(queue), args.executor) end
  redis.call('DEL', key.wake(args.executor))
end

local function open_queues(queues)
  local paused, open = redis.call('SMISMEMBER', key.paused(), unpack(queues)), {}
  for place, queue in ipairs(queues) do
    if paused[place] == 0 then open[#open + 1] = queue end
  end
  return open
end

-- Work that is left is for others: wake one. An executor that was idle may have been woken for any of its queues, so it
-- passes on the wake-ups of those that it does not come to.
local function pass_on(open, place, was_idle)
  for at = place, was_idle and #open or place do
    if redis.call('ZCARD', key.index(open[at], 'waiting')) > 0 then wake(open[at]) end
  end
end

local function claim(args)
  local counter, line = last_claim(args)
  if counter == args.counter then return repeat_claim(args, line) end
  if counter and counter > args.counter then refuse('INVALID', 'the counter of ' .. args.executor .. ' went back') end
  beat()
  advance()
  if args.idle then stop_idling(args) end
  local open, reply, taken, bytes, enough = open_queues(args.queues), { 0, key.wake(args.executor) }, {}, 0, false
  for place, queue in ipairs(open) do
    bytes, enough = take(queue, args, reply, taken, bytes)
    settle()
    if enough then
      pass_on(open, place, args.idle)
      break
    end
  end
  remember_claim(args, taken)
  if #taken == 0 then
    become_idle(args)
    reply[1] = next_wait()
  end
  return reply
end

verb('claim', { 'allow-oom' }, function(args)
  check_claim(args)
  local reply = claim(args)
  publish(args.executor)
  return reply
end)
