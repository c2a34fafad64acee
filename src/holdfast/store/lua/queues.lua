-- queues: list, pause, resume and forget queues.
--
--   queue_names(cursor)           names, a page at a time
--   queues(queues or cursor)      of the named queues, or of all, a page at a time: name, whether it is paused, number of
--                                 live workers, and the numbers of jobs in the order of STATES
--   pause(queue), resume(queue)   1 if that changed anything
--   forget_queue(queue)           delete everything known about a queue without jobs, except who serves it; 1 if there was
--                                 anything. Errors: STATE if it has jobs
--   set_share_weight(queue, share, weight)   1 if that changed anything
--
-- Errors: INVALID. A page begins with the cursor of the next one, '' after the last. Queues are in the order of their names.

local DEFAULT, STATES, check_integer = core.DEFAULT, core.STATES, core.check_integer
local check_list = core.check_list
local check_name, check_queue = core.check_name, core.check_queue
local emit_about, fair_shares, index_key, queue_sets = core.emit_about, core.fair_shares, core.index_key, core.queue_sets
local publish_events, refuse, register = core.publish_events, core.refuse, core.register
local register_queue, set_marker, store_config_digest = core.register_queue, core.set_marker, core.store_config_digest
local wake_executor = core.wake_executor

-- Queues of one page: most have few commands, since states without jobs have no key.
local NAMES_PER_PAGE, QUEUES_PER_PAGE = 1000, 250

-- The names of a page: those that were given, or the next of all; and the cursor of the next page.
local function page_of(args, size)
  if args.queues then
    for _, queue in ipairs(check_list(args.queues, 'queues', 0)) do check_queue(queue) end
    return args.queues, ''
  end
  local after = args.cursor and args.cursor ~= '' and '(' .. check_queue(args.cursor) or '-'
  local names = redis.call('ZRANGEBYLEX', key.queues(), after, '+', 'LIMIT', 0, size)
  return names, #names == size and names[size] or ''
end

-- The number of jobs in each of some states. The likeliest are counted first, until all that exist are counted.
local LIKELY = { 'succeeded', 'waiting', 'scheduled', 'failed', 'running', 'cancelled', 'blocked', 'throttled' }
local function count_by_state(queue)
  local keys, counts = {}, {}
  for place, state in ipairs(LIKELY) do keys[place], counts[state] = index_key(queue, state), 0 end
  local left = redis.call('EXISTS', unpack(keys))
  for place, state in ipairs(LIKELY) do
    if left == 0 then break end
    counts[state] = redis.call('ZCARD', keys[place])
    if counts[state] > 0 then left = left - 1 end
  end
  return counts
end

local function queue_counts(queue, states)
  local by_state, counts = count_by_state(queue), {}
  for place, state in ipairs(states) do counts[place] = by_state[state] end
  return counts
end

local function is_paused(queue) return markers.paused and redis.call('SISMEMBER', key.paused(), queue) or 0 end

register('queues', { 'no-writes' }, function(args)
  local queues, cursor = page_of(args, QUEUES_PER_PAGE)
  local reply, count_workers = { cursor }, queue_sets.new_count()
  for place, queue in ipairs(queues) do
    reply[place + 1] = { queue, is_paused(queue), count_workers(queue), unpack(queue_counts(queue, STATES)) }
  end
  return reply
end)

register('queue_names', { 'no-writes' }, function(args)
  local names, cursor = page_of(args, NAMES_PER_PAGE)
  table.insert(names, 1, cursor)
  return names
end)

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
    core.queue_sets.mark_ready(args.queue)
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
  gone = gone + redis.call('ZREM', key.queues(), queue) + redis.call('SREM', key.paused(), queue)
  update_paused_marker()
  fair_shares.prune(queue)
  redis.call('DEL', key.fair(queue), key.load(queue), key.bridged(queue))
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

core.page_of, core.count_by_state, core.is_paused = page_of, count_by_state, is_paused
