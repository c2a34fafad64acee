-- subscriptions: durable readers of the events, whose handlers are jobs.
--
-- A worker with the handler leases a subscription, reads the events after its position, and delivers those that match: one
-- call enqueues the jobs of the handler and moves the position, unless another worker has moved it. So each event is
-- delivered exactly once, whoever dies; the lease only saves the others the reading.
--
--   declare_subscription(name, spec, batch, revision, start)
--     spec       what workers need to select and deliver events, as text
--     batch      the job of the handler, as in enqueue.lua, without ids
--     start      where a new subscription begins: 'now' (default), with the first event that is kept ('start'), or now with a
--                gap ('gap': the store has lost what it knew of it). One whose position is damaged begins with a gap
--     An older revision does not replace a newer one. Returns 1 if that changed anything
--   lease_subscriptions(names, worker, lease)   those that the worker holds for `lease` milliseconds more (0: gives them
--                              back): name, position, spec, 1 if it is paused, name ...
--   deliver(name, worker, expected, position), blobs: ids separated by spaces, then a payload for each
--                              enqueue up to 100 jobs of the handler, and move the position, if it is the expected one. Returns
--                              the position, and 1 if this call moved it
--   pause_subscription(name)  resume_subscription(name)   1 if that changed anything
--   unsubscribe(name)          1 if it existed
--   subscriptions(names or after)   list them by name, or those after a name; up to 1,000; each as a list of names and values,
--                              including `now` and `last_event`
--
-- Errors: NOSUBSCRIPTION, INVALID, TOOBIG, STATE (an older revision; a damaged record, which a declaration repairs).

local check_id, check_integer, check_list, check_name = core.check_id, core.check_integer, core.check_list, core.check_name
local check_template, check_worker, emit_about = core.check_template, core.check_worker, core.emit_about
local enqueue, publish_events, refuse, register = core.enqueue, core.publish_events, core.refuse, core.register
local MAX_BATCH, MAX_LEASE = constants.MAX_BATCH, constants.MAX_LEASE

local MAX_SUBSCRIPTIONS, MAX_DELIVERED, MAX_SPEC, MAX_POSITION = 1000, 100, 4096, 42
local STARTS, MAX_SEQUENCE = { now = true, start = true, gap = true }, '18446744073709551615'

local function subscription_name(value) return check_name(value, 'a subscription', constants.MAX_NAME, '%w_.:%-') end

local function is_position(text)
  return text == 'start' or type(text) == 'string' and #text <= MAX_POSITION and string.find(text, '^=?%d+%-%d+$') ~= nil
end

-- The fields of a subscription; nil if it does not exist. What is damaged is left out.
local function load_subscription(name)
  local list, fields = redis.pcall('HGETALL', key.subscription(subscription_name(name))), {}
  if list.err then return fields end
  for place = 1, #list, 2 do fields[list[place]] = list[place + 1] end
  if not is_position(fields.position) then fields.position = nil end
  return #list > 0 and fields or nil
end

local function is_whole(subscription) return subscription.position and subscription.spec and subscription.batch end

local function require_subscription(name)
  local subscription = load_subscription(name)
  if not subscription then refuse('NOSUBSCRIPTION', 'subscription ' .. name .. ' does not exist') end
  if not is_whole(subscription) then
    refuse('STATE', 'subscription ' .. name .. ' is damaged: remove it, or start a worker that declares it')
  end
  return subscription
end

local function last_event()
  local last = redis.call('XREVRANGE', key.events, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

-- A position from which readers get a gap, then the last events, and all that follow: an id that no event has.
local function before_last_event()
  local time = tonumber(string.match(last_event(), '^%d+'))
  return string.format('%.0f-%s', math.max(0, time - 1), time > 0 and MAX_SEQUENCE or '1')
end

local function first_position(start, is_damaged)
  if is_damaged or start == 'gap' then return before_last_event() end
  return start == 'start' and 'start' or last_event()
end

local function check_declaration(args)
  subscription_name(args.name)
  check_integer(args.revision or 0, 'the revision', 0, 2 ^ 52)
  if type(args.spec) ~= 'string' then refuse('INVALID', '`spec` must be a text') end
  if #args.spec > MAX_SPEC then refuse('TOOBIG', string.format('`spec` is %d bytes (limit %d)', #args.spec, MAX_SPEC)) end
  if args.start ~= nil and not STARTS[args.start] then refuse('INVALID', "`start` must be 'now', 'start' or 'gap'") end
  check_template(args.batch, args.name, 'subscription')
end

register('declare_subscription', {}, function(args)
  check_declaration(args)
  local known, revision = load_subscription(args.name), args.revision or 0
  if known and (tonumber(known.revision) or 0) > revision then
    refuse('STATE', 'subscription ' .. args.name .. ' was declared by a newer release, revision ' .. known.revision)
  end
  local batch, text = core.encode_sorted(args.batch), string.format('%.0f', revision)
  if known and known.position and known.spec == args.spec and known.batch == batch and known.revision == text then return 0 end
  if not known and redis.call('ZCARD', key.subscriptions()) >= MAX_SUBSCRIPTIONS then
    refuse('INVALID', string.format('there are already %d subscriptions (the limit)', MAX_SUBSCRIPTIONS))
  end
  if not known or not known.position then -- it is new, or damaged and begins anew
    redis.call('DEL', key.subscription(args.name))
    redis.call('HSET', key.subscription(args.name), 'position', first_position(args.start, known ~= nil), 'since', now)
    if known and known.paused then redis.call('HSET', key.subscription(args.name), 'paused', known.paused) end
  end
  redis.call('HSET', key.subscription(args.name), 'spec', args.spec, 'batch', batch, 'revision', text)
  redis.call('ZADD', key.subscriptions(), 0, args.name)
  emit_about('configured', args.name, { 'subscription', 'declared' })
  publish_events()
  return 1
end)

-- Whether another worker holds the lease. One that is longer than leases are was made by a clock that has been set back.
local function is_held(subscription, worker, lease)
  local ends = tonumber(subscription.ends) or 0
  return subscription.holder ~= worker and ends > now and ends <= now + math.max(lease, MAX_LEASE)
end

local function lease_one(name, worker, lease, reply)
  local subscription = load_subscription(name)
  if not subscription or not is_whole(subscription) or is_held(subscription, worker, lease) then return end
  if lease == 0 then
    if subscription.holder == worker then redis.call('HDEL', key.subscription(name), 'holder', 'ends') end
    return
  end
  redis.call('HSET', key.subscription(name), 'holder', worker, 'ends', string.format('%.0f', now + lease))
  for _, part in ipairs({ name, subscription.position, subscription.spec, subscription.paused or '0' }) do
    reply[#reply + 1] = part
  end
end

register('lease_subscriptions', { 'allow-oom' }, function(args)
  check_worker(args.worker)
  check_integer(args.lease, 'the lease', 0, MAX_LEASE)
  local reply = {}
  for _, name in ipairs(check_list(args.names, 'names')) do subscription_name(name) end
  for _, name in ipairs(args.names) do lease_one(name, args.worker, args.lease, reply) end
  return reply
end)

local function check_deliver(args, blobs)
  check_worker(args.worker)
  if type(args.expected) ~= 'string' or not is_position(args.position) then
    refuse('INVALID', 'expected positions of the events as `expected` and `position`')
  end
  local ids = {}
  for id in string.gmatch(blobs[2] or '', '%S+') do ids[#ids + 1] = check_id(id) end
  if #ids > MAX_DELIVERED or (#ids > 0 and #blobs ~= #ids + 2) then
    refuse('INVALID', string.format('expected up to %d ids, and a payload for each', MAX_DELIVERED))
  end
  return ids
end

register('deliver', {}, function(args, blobs)
  local ids, subscription = check_deliver(args, blobs), require_subscription(args.name)
  if subscription.position ~= args.expected or subscription.paused == '1' then return { subscription.position, 0 } end
  if #ids > 0 then
    local batch = cjson.decode(subscription.batch)
    batch.ids = ids
    local reply, count = enqueue({ batches = { batch }, on_exists = 'return' }, blobs), 0
    for place = 2, #reply do count = count + (reply[place] == 1 and 1 or 0) end
    redis.call('HSET', key.subscription(args.name), 'job', ids[#ids], 'at', now,
      'delivered', string.format('%.0f', (tonumber(subscription.delivered) or 0) + count))
  end
  redis.call('HSET', key.subscription(args.name), 'position', args.position)
  publish_events(args.worker)
  return { args.position, 1 }
end)

local function set_paused(args, paused)
  local subscription = require_subscription(args.name)
  if (subscription.paused == '1') == paused then return 0 end
  redis.call('HSET', key.subscription(args.name), 'paused', paused and '1' or '0')
  emit_about(paused and 'paused' or 'resumed', args.name, 'subscription')
  publish_events()
  return 1
end

register('pause_subscription', { 'allow-oom' }, function(args) return set_paused(args, true) end)

register('resume_subscription', { 'allow-oom' }, function(args) return set_paused(args, false) end)

register('unsubscribe', { 'allow-oom' }, function(args)
  local gone = redis.call('DEL', key.subscription(subscription_name(args.name)))
  redis.call('ZREM', key.subscriptions(), args.name)
  if gone == 1 then emit_about('configured', args.name, { 'subscription', 'removed' }) end
  publish_events()
  return gone
end)

local function names_after(last)
  local from = last and '(' .. subscription_name(last) or '-'
  return redis.call('ZRANGEBYLEX', key.subscriptions(), from, '+', 'LIMIT', 0, MAX_BATCH)
end

register('subscriptions', { 'no-writes' }, function(args)
  local reply, last = {}, last_event()
  for _, name in ipairs(args.names and check_list(args.names, 'names') or names_after(args.after)) do
    local fields = redis.pcall('HGETALL', key.subscription(subscription_name(name)))
    if fields.err or #fields > 0 then
      fields.err = nil
      for _, part in ipairs({ 'name', name, 'now', string.format('%.0f', now), 'last_event', last }) do
        fields[#fields + 1] = part
      end
      reply[#reply + 1] = fields
    end
  end
  return reply
end)
