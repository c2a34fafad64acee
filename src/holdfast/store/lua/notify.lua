-- notify: wake idle executors, and send messages to workers and to programs that wait for results.
--
-- A wake-up is only a hint: an idle executor blocks on its own key for a few seconds, then claims again anyway.

local DAY, worker_of = core.DAY, core.worker_of
local MAX_BATCH, MAX_IDLE_WAIT = constants.MAX_BATCH, constants.MAX_IDLE_WAIT

local IDLE_TIMEOUT = 3 * MAX_IDLE_WAIT -- an executor that has not claimed for longer is gone
local MAX_WAITERS = 16 -- per job

-- Whether the executor is still registered; `requeue_orphaned` removes dead ones.
local function is_registered(executor)
  local worker, number = worker_of(executor)
  return redis.call('HEXISTS', key.worker(worker), number) == 1
end

local function push_wakeup(executor, queue)
  redis.call('RPUSH', key.wake(executor), queue)
  redis.call('PEXPIRE', key.wake(executor), IDLE_TIMEOUT)
end

-- Wake the executor of a queue that became idle last; one of the worker `last` only if there is no other.
local function wake_executor(queue, last)
  if markers.paused and redis.call('SISMEMBER', key.paused(), queue) == 1 then return end
  local chosen, passed = nil, {}
  for _ = 1, 20 do
    local idle = redis.call('ZPOPMAX', key.idle(queue))
    if not idle[1] then break end
    if now - tonumber(idle[2]) < IDLE_TIMEOUT and is_registered(idle[1]) then
      if worker_of(idle[1]) ~= last then chosen = idle[1] break end
      passed[#passed + 1] = idle
    end
  end
  if not chosen and passed[1] then chosen = table.remove(passed, 1)[1] end
  if chosen then push_wakeup(chosen, queue) end
  for _, idle in ipairs(passed) do redis.call('ZADD', key.idle(queue), idle[2], idle[1]) end
end

-- An inbox keeps the last 1,000 messages.
local function send_message(inbox, message)
  local list = key.inbox(inbox)
  redis.call('RPUSH', list, message)
  redis.call('LTRIM', list, -1000, -1)
  redis.call('PEXPIRE', list, DAY)
end

-- Register a queue that may be new, and notify workers that serve patterns.
local function register_queue(queue)
  if redis.call('ZADD', key.queues(), 0, queue) == 0 then return end
  meta.queues = redis.call('HINCRBY', key.meta, 'queues', 1)
  for _, worker in ipairs(redis.call('SRANDMEMBER', key.matchers(), MAX_BATCH)) do
    if redis.call('EXISTS', key.worker(worker)) == 1 then
      if redis.call('LINDEX', key.inbox(worker), -1) ~= 'queues' then send_message(worker, 'queues') end
    else
      redis.call('SREM', key.matchers(), worker)
    end
  end
end

-- Notify the programs that wait for the result of an ended job.
local function notify_waiters(job, waiters)
  if not waiters or waiters == '' then return end
  for inbox in string.gmatch(waiters, '%S+') do send_message(inbox, job.id) end
end

core.wake_executor, core.IDLE_TIMEOUT, core.MAX_WAITERS = wake_executor, IDLE_TIMEOUT, MAX_WAITERS
core.send_message, core.register_queue, core.notify_waiters = send_message, register_queue, notify_waiters
