-- call: what all functions of the library share: argument checks, errors, the clock, tokens, registration.

local use_namespace = core.use_namespace
local MAX_BATCH, MAX_ID, MAX_NAME = constants.MAX_BATCH, constants.MAX_ID, constants.MAX_NAME
local MAX_CALLER, REPLY_TTL = constants.MAX_CALLER, constants.REPLY_TTL

local SCHEMA = '2'

-- End the call with an error. Nothing may have been written yet.
local function refuse(code, message) error({ refusal = code .. ' ' .. message }, 0) end

local function check_integer(value, what, min, max)
  if type(value) ~= 'number' or value % 1 ~= 0 or value < min or value > max then
    refuse('INVALID', string.format('%s must be a whole number from %.0f to %.0f, not %s', what, min, max,
      string.sub(tostring(value), 1, 40)))
  end
  return value
end

local function check_optional(value, what, min, max)
  if value ~= nil then check_integer(value, what, min, max) end
  return value
end

local function check_name(value, what, max, characters)
  if type(value) ~= 'string' or #value < 1 or #value > max or not string.find(value, '^[' .. characters .. ']+$') then
    refuse('INVALID', string.format('%s must be 1 to %d letters, digits or any of %s, not %q', what, max,
      (string.gsub(characters, '%%w?', '')), string.sub(tostring(value), 1, 40)))
  end
  return value
end

local function check_queue(value) return check_name(value, 'a queue', MAX_NAME, '%w_.%-') end

local function check_id(value)
  if type(value) == 'string' and #value <= MAX_ID and string.find(value, '^[%w._:@/%-]+$') then return value end
  if type(value) == 'string' and string.find(value, '^[^~]+~%d%d?%d?%d?%d?$') then
    check_name(string.match(value, '^[^~]+'), 'a job id', MAX_ID, '%w._:@/%-')
    return value
  end
  return check_name(value, 'a job id', MAX_ID, '%w._:@/%-')
end

local function check_list(value, what, min)
  if type(value) ~= 'table' or #value < (min or 1) or #value > MAX_BATCH then
    refuse('INVALID', string.format('%s must be a list of %d to %d', what, min or 1, MAX_BATCH))
  end
  return value
end

-- Check every id before anything is done to the first.
local function check_ids(value)
  for _, id in ipairs(check_list(value, 'ids')) do check_id(id) end
  return value
end

-- Check that no id occurs twice.
local function check_distinct_ids(value, what, min)
  local seen = {}
  for _, id in ipairs(check_list(value, what, min)) do
    if seen[check_id(id)] then refuse('INVALID', 'job ' .. id .. ' occurs twice in `' .. what .. '`') end
    seen[id] = true
  end
  return value
end

-- An executor is `<node>/<worker>.<number>`; the part before the dot is its worker. With at most 39 characters, the
-- field of an attempt stays within 64 bytes.
local function check_executor(value)
  if type(value) ~= 'string' or #value > 39 or not string.find(value, '^[%w_.%-]+/%w+%.%d+$') then
    refuse('INVALID', 'expected an executor as <node>/<worker>.<number>, got ' .. string.sub(tostring(value), 1, 60))
  end
  return value
end

local function check_worker(value)
  if type(value) ~= 'string' or not string.find(value, '^[%w_.%-]+/%w+$') then
    refuse('INVALID', 'expected a worker as <node>/<worker>, got ' .. string.sub(tostring(value), 1, 60))
  end
  check_executor(value .. '.0')
  return value
end

local function worker_of(executor) return string.match(executor, '^(.+)%.(%d+)$') end

-- Append one or two values to the list that a batch keeps under a name. The batch itself lists its names.
local function collect(batch, where, first, second)
  local list = batch[where]
  if not list then
    batch[where], batch[#batch + 1] = { first, second }, where
    return
  end
  local count = #list
  list[count + 1] = first
  if second ~= nil then list[count + 2] = second end
end

-- Reserve arrival numbers, which are never assigned twice. Returns the one before the first.
local function reserve_arrivals(count)
  if meta.new then redis.call('HSET', key.meta, 'schema', SCHEMA, 'since', now) end
  meta.new, meta.since = false, meta.since or now
  meta.arrivals = redis.call('HINCRBY', key.meta, 'arrivals', count)
  return meta.arrivals - count
end

local on_first_call = {} -- run by the first call: Lua functions cannot be called while the library is being loaded

-- A client repeats a call whose reply was lost. A call that must not run twice has a token; its reply is stored for
-- REPLY_TTL and returned again to a repeated call.

local function load_reply(token)
  local packed = redis.call('GET', key.answer(check_name(token, 'a token', 40, '%w')))
  return packed and cmsgpack.unpack(packed)
end

local function store_reply(token, reply, ttl)
  redis.call('SET', key.answer(token), cmsgpack.pack(reply), 'PX', ttl or REPLY_TTL)
end

local function read_clock(args)
  if args.now then return args.now end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Markers indicate that something rare needs attention: outages (lease.lua), config, resolving (dependencies.lua),
-- changed and undefined (limits.lua), fair (shares.lua), refill (schedules.lua), paused, surplus (prune.lua), other
-- (failures.lua), marks (marks.lua), batches and ending (batches.lua), sets, pools and filling (queue_sets.lua), operations. They
-- are one JSON field, so most calls read one missing field instead of seventeen.
local markers_text = false -- as it is stored

local function set_marker(name, value)
  markers[name] = value
  markers_text = next(markers) and cjson.encode(markers)
  if not markers_text then return redis.call('HDEL', key.meta, 'markers') end
  redis.call('HSET', key.meta, 'schema', SCHEMA, 'markers', markers_text)
end

-- Of most markers, only whether they are set is used; of these, the value.
local TYPE_OF_MARKER = { outages = 'string', config = 'string', other = 'string', sets = 'string', undefined = 'number' }

-- What cannot be read counts as lost: a check sets it again.
local function read_markers(text)
  local is_whole, read = pcall(cjson.decode, text)
  if not is_whole or type(read) ~= 'table' then return {} end
  for name, expected in pairs(TYPE_OF_MARKER) do
    if type(read[name]) ~= expected then read[name] = nil end
  end
  return read
end

-- Read the fields of `meta` that every call needs, and unless the call is light, those that `advance` needs.
local function read_meta(is_light)
  local values
  if is_light then
    values = redis.call('HMGET', key.meta, 'schema', 'markers')
  else
    values = redis.call('HMGET', key.meta, 'schema', 'markers', 'arrivals', 'pulse', 'pruned', 'since')
    meta.arrivals, meta.pulse = tonumber(values[3]) or 0, tonumber(values[4])
    meta.pruned, meta.since = tonumber(values[5]) or 0, tonumber(values[6])
  end
  meta.new = not values[1]
  if values[1] and values[1] ~= SCHEMA then
    refuse('SCHEMA', string.format('this data has schema %s, and this release of Holdfast reads schema %s: use the release '
      .. 'that wrote the data, or another namespace', string.sub(values[1], 1, 40), SCHEMA))
  end
  if values[2] ~= markers_text then
    markers, markers_text = read_markers(values[2] or '{}'), values[2]
  end
  core.read_config(markers.config)
end

-- Calls that differ only in their blobs repeat their arguments, so decoded and checked arguments are cached by their
-- text.
local cached_args = { count = 0 } -- and text -> arguments

local function cache_args(text, args)
  if args.is_cached or #text > 2000 then return end
  if cached_args.count >= 500 then cached_args = { count = 0 } end
  args.is_cached, cached_args[text], cached_args.count = true, args, cached_args.count + 1
end

local function read_args(text)
  local args = cached_args[text]
  if args then return args end
  args = cjson.decode(text)
  args.is_cached = nil -- callers cannot set this
  return args
end

-- Any call may name its caller, for its events.
local function check_caller(who)
  if type(who) ~= 'string' or #who > MAX_CALLER or not string.find(who, '^[^%c%s]+$') then
    refuse('INVALID', string.format('`who` must be 1 to %d bytes of text without spaces', MAX_CALLER))
  end
  return who
end

local function execute(body, is_light, args, blobs, prepare)
  local before = now -- of the last call of this library, in any namespace
  now, is_now_given, caller = read_clock(args), args.now ~= nil, args.who and check_caller(args.who)
  local early = prepare and prepare()
  if early then return early end
  read_meta(is_light)
  local answer = args.token and load_reply(args.token)
  if answer and args.acknowledge then store_reply(args.token, answer) end -- a write, which replicas can acknowledge
  if answer then return answer end
  local reply, is_unchanged = body(args, blobs, before)
  core.store_statistics()
  if changed_counts then core.marks.store_counts() end
  if args.token and (args.acknowledge or not is_unchanged) then store_reply(args.token, reply) end
  return reply
end

-- Handle an error that is not a refusal: complete what was written so far, and log the error on the server.
local function recover(fault)
  redis.log(redis.LOG_WARNING, 'holdfast: ' .. tostring(fault))
  core.flush_after_error()
  call_failed = true
end

local function is_refusal(fault) return type(fault) == 'table' and fault.refusal end

-- Run a loop to its end even if iterations fail. The loop must advance its counter before it does any work, so that a
-- failure skips one iteration; `failed`, if given, is called for it.
local function loop_despite_errors(loop, failed)
  while true do
    local done, fault = pcall(loop)
    if done then return end
    if is_refusal(fault) then error(fault, 0) end
    recover(fault)
    if failed then failed() end
  end
end

-- Run all steps, even if some fail.
local function run_all(steps)
  local at = 0
  loop_despite_errors(function()
    while at < #steps do
      at = at + 1
      steps[at]()
    end
  end)
end

local last_call_succeeded = false

local function initialise()
  redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall = globals()
  for _, prepare in ipairs(on_first_call) do prepare() end
end

-- Register a library function. Its name carries the library's digest, so that releases run side by side. `body(args,
-- blobs)` returns the reply, and whether nothing was changed; otherwise the reply is stored under the call's token.
-- `is_light`: the call needs only the schema and the markers. `prepare` runs before `meta` is read, and may return a reply.
local function register(name, flags, body, is_light, prepare)
  redis.register_function({
    function_name = 'hf_' .. DIGEST .. '_' .. name,
    flags = flags,
    callback = function(keys, argv)
      if not string then initialise() end
      use_namespace(keys[1])
      core.begin_call(last_call_succeeded)
      last_call_succeeded = false
      local done, reply = pcall(execute, body, is_light, read_args(argv[1]), argv, prepare)
      last_call_succeeded = done
      if done then return reply end
      if is_refusal(reply) then
        pcall(core.store_statistics) -- of what was done before the refusal: a finish whose claim is refused
        return redis.error_reply(reply.refusal)
      end
      recover(reply)
      pcall(core.remember_failed_claim)
      pcall(core.publish_events)
      pcall(core.store_statistics)
      if changed_counts then pcall(core.marks.store_counts) end
      error(reply, 0)
    end,
  })
end

core.SCHEMA, core.refuse, core.check_integer, core.check_optional = SCHEMA, refuse, check_integer, check_optional
core.check_name, core.check_queue, core.check_id, core.check_list = check_name, check_queue, check_id, check_list
core.check_ids, core.check_distinct_ids, core.check_executor = check_ids, check_distinct_ids, check_executor
core.check_worker, core.worker_of, core.collect = check_worker, worker_of, collect
core.reserve_arrivals, core.register = reserve_arrivals, register
core.cache_args, core.set_marker, core.on_first_call = cache_args, set_marker, on_first_call
core.is_refusal, core.loop_despite_errors, core.run_all = is_refusal, loop_despite_errors, run_all
core.load_reply, core.store_reply, core.recover = load_reply, store_reply, recover
