-- queues: the queues and how many jobs of each state they have; count: their sum; pause and resume.
--
-- queues(names; not given: all) returns for each: name, paused, and the numbers of jobs in the order of
-- STATES. count(queues, states) returns one number. pause(queue) and resume(queue) return 1 if that changed anything.

local function queue_counts(queue, states)
  local counts = {}
  for place, state in ipairs(states) do counts[place] = redis.call('ZCARD', key.index(queue, state)) end
  return counts
end

verb('queues', { 'no-writes' }, function(args)
  local reply = {}
  for place, queue in ipairs(args.queues or all_queues()) do
    local counts = queue_counts(queue_name(queue), STATES)
    reply[place] = { queue, redis.call('SISMEMBER', key.paused(), queue), unpack(counts) }
  end
  return reply
end)

verb('count', { 'no-writes' }, function(args)
  local total = 0
  check_states(args.states or {})
  for _, queue in ipairs(args.queues or all_queues()) do
    for _, count in ipairs(queue_counts(queue_name(queue), args.states or STATES)) do total = total + count end
  end
  return total
end)

verb('pause', { 'allow-oom' }, function(args)
  redis.call('ZADD', key.queues(), 0, queue_name(args.queue))
  local changed = redis.call('SADD', key.paused(), args.queue)
  if changed == 1 then event('paused', args.queue) end
  publish()
  return changed
end)

verb('resume', { 'allow-oom' }, function(args)
  local changed = redis.call('SREM', key.paused(), queue_name(args.queue))
  if changed == 1 then
    event('resumed', args.queue)
    wake(args.queue)
  end
  publish()
  return changed
end)
