-- notify: wake idle executors, and send messages to workers and to programs that wait for results.
--
-- A wake-up is only a hint: an idle executor blocks on its own key for a few seconds, then claims again anyway.

local DAY, queue_sets, worker_of = core.DAY, core.queue_sets, core.worker_of
local MAX_IDLE_WAIT = constants.MAX_IDLE_WAIT

local IDLE_TIMEOUT = 3 * MAX_IDLE_WAIT -- an executor that has not claimed for longer is gone
local MAX_WAITERS = 16 -- per job

-- Whether the executor is still registered; `requeue_orphaned` removes dead ones.
local function is_registered(executor)
  local worker, number = worker_of(executor)
  return redis.call('HEXISTS', key.worker(worker), number) == 1
end

-- Push the queue twice to an executor of a pool: its blocking call takes one, and its claim reads the other.
local function push_wakeup(executor, queue, of_pool)
  if of_pool then
    redis.call('RPUSH', key.wake(executor), queue, queue)
  else
    redis.call('RPUSH', key.wake(executor), queue)
  end
  redis.call('PEXPIRE', key.wake(executor), IDLE_TIMEOUT)
end

-- Remove the executor that became idle last from the sets of a queue: from that of the queue alone, then from those that
-- name it, then from those with a pattern. Returns executor, time, key, and whether the set is a pool.
local function pop_idle(queue, sets)
  local own = key.idle(queue)
  if not sets[1] then
    local popped = redis.call('ZPOPMAX', own)
    return popped[1], tonumber(popped[2]), own, false
  end
  local keys, of_pool = { own }, {}
  for place, set in ipairs(sets) do
    keys[place + 1] = key.idle(set.id)
    of_pool[keys[place + 1]] = set.is_pool
  end
  keys[#keys + 1] = 'MAX'
  local popped = redis.call('ZMPOP', #keys - 1, unpack(keys))
  if popped then return popped[2][1][1], tonumber(popped[2][1][2]), popped[1], of_pool[popped[1]] end
end

-- Wake an idle executor of a queue; one of the worker `last` only if there is no other. Returns whether there was one.
local function wake_executor(queue, last)
  if markers.paused and redis.call('SISMEMBER', key.paused(), queue) == 1 then return false end
  local sets, chosen, passed = queue_sets.serving(queue), nil, {}
  for _ = 1, 20 do
    local executor, since, from, of_pool = pop_idle(queue, sets)
    if not executor then break end
    if now - since >= IDLE_TIMEOUT then
      redis.call('DEL', from) -- the others there have been idle for longer
    elseif is_registered(executor) then
      local idle = { executor, since, from, of_pool }
      if worker_of(executor) ~= last then chosen = idle break end
      passed[#passed + 1] = idle
    end
  end
  if not chosen and passed[1] then chosen = table.remove(passed, 1) end
  if chosen then push_wakeup(chosen[1], queue, chosen[4]) end
  for _, idle in ipairs(passed) do
    redis.call('ZADD', idle[3], idle[2], idle[1])
    redis.call('PEXPIRE', idle[3], DAY)
  end
  return chosen ~= nil
end

-- An inbox keeps the last 1,000 messages.
local function send_message(inbox, message)
  local list = key.inbox(inbox)
  redis.call('RPUSH', list, message)
  redis.call('LTRIM', list, -1000, -1)
  redis.call('PEXPIRE', list, DAY)
end

-- Register a queue that may be new.
local function register_queue(queue) redis.call('ZADD', key.queues(), 0, queue) end

-- Notify the programs that wait for the result of an ended job.
local function notify_waiters(job, waiters)
  if not waiters or waiters == '' then return end
  for inbox in string.gmatch(waiters, '%S+') do send_message(inbox, job.id) end
end

core.wake_executor, core.IDLE_TIMEOUT, core.MAX_WAITERS = wake_executor, IDLE_TIMEOUT, MAX_WAITERS
core.send_message, core.register_queue, core.notify_waiters = send_message, register_queue, notify_waiters
