-- queues: list, pause, resume and forget queues.
--
--   queue_names()                 all names
--   queues(queues; default: all)  for each: name, whether it is paused, number of live workers, and the numbers of jobs in the
--                                 order of STATES
--   pause(queue), resume(queue)   1 if that changed anything
--   forget_queue(queue)           delete everything known about a queue without jobs; 1 if there was anything. Errors: STATE
--                                 if it has jobs
--   set_share_weight(queue, share, weight)   1 if that changed anything
--
-- Errors: INVALID.

local DEFAULT, STATES, all_queues, check_integer = core.DEFAULT, core.STATES, core.all_queues, core.check_integer
local check_name, check_queue = core.check_name, core.check_queue
local count_workers, emit_about, fair_shares = core.count_workers, core.emit_about, core.fair_shares
local publish_events, refuse, register = core.publish_events, core.refuse, core.register
local register_queue, set_marker, store_config_digest = core.register_queue, core.set_marker, core.store_config_digest
local wake_executor = core.wake_executor

local function queue_counts(queue, states)
  local counts = {}
  for place, state in ipairs(states) do counts[place] = redis.call('ZCARD', key.index[queue][state]) end
  return counts
end

register('queues', { 'no-writes' }, function(args)
  local reply, workers = {}, count_workers()
  for place, queue in ipairs(args.queues or all_queues()) do
    local counts = queue_counts(check_queue(queue), STATES)
    reply[place] = { queue, redis.call('SISMEMBER', key.paused(), queue), workers[queue] or 0, unpack(counts) }
  end
  return reply
end)

register('queue_names', { 'no-writes' }, function() return all_queues() end)

-- Call this after the set of paused queues has changed: other calls read the set only if the marker is set.
local function update_paused_marker()
  set_marker('paused', redis.call('EXISTS', key.paused()) == 1 and 1 or nil)
end

register('pause', { 'allow-oom' }, function(args)
  register_queue(check_queue(args.queue))
  local changed = redis.call('SADD', key.paused(), args.queue)
  if changed == 1 then
    update_paused_marker()
    emit_about('paused', args.queue, 'queue', args.queue)
  end
  publish_events()
  return changed
end)

register('resume', { 'allow-oom' }, function(args)
  local changed = redis.call('SREM', key.paused(), check_queue(args.queue))
  if changed == 1 then
    update_paused_marker()
    emit_about('resumed', args.queue, 'queue', args.queue)
    wake_executor(args.queue)
  end
  publish_events()
  return changed
end)

register('forget_queue', { 'allow-oom' }, function(args)
  local queue, settings = check_queue(args.queue), {}
  for place, count in ipairs(queue_counts(queue, STATES)) do
    if count > 0 then
      refuse('STATE', string.format('queue %s is not empty (%d %s): cancel or delete its jobs first', queue, count, STATES[place]))
    end
  end
  for name in pairs(DEFAULT) do settings[#settings + 1] = queue .. '/' .. name end
  local gone = redis.call('HDEL', key.config(), unpack(settings))
  if gone > 0 then store_config_digest() end
  local known = redis.call('ZREM', key.queues(), queue)
  if known == 1 then redis.call('HINCRBY', key.meta, 'queues', 1) end -- workers with patterns match again
  gone = gone + known + redis.call('SREM', key.paused(), queue)
  update_paused_marker()
  fair_shares.prune(queue)
  redis.call('DEL', key.idle(queue), key.fair(queue), key.load(queue), key.bridged(queue))
  core.forget_statistics(queue)
  return gone > 0 and 1 or 0
end)

register('set_share_weight', {}, function(args)
  local queue = check_queue(args.queue)
  check_name(args.share, 'the key of a share', constants.MAX_KEY, '%w._:@/%-')
  check_integer(args.weight, 'the weight', 1, constants.MAX_SHARE_WEIGHT)
  local field = 'w' .. args.share
  if (tonumber(redis.call('HGET', key.fair(queue), field)) or 1) == args.weight then return 0 end
  if args.weight == 1 then
    redis.call('HDEL', key.fair(queue), field)
  else
    register_queue(queue)
    redis.call('HSET', key.fair(queue), field, args.weight)
  end
  emit_about('configured', queue, { 'share', args.share, string.format('%d', args.weight) }, queue)
  publish_events()
  return 1
end)
