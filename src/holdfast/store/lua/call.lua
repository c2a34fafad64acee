-- call: what every function of the library shares: the call's time, its refusals, its events.

local use_base = core.use_base

local SCHEMA = '1'
local MAX_BATCH, MAX_ID = constants.MAX_BATCH, constants.MAX_ID

-- End the call with an error. Nothing may have been written yet.
local function refuse(code, words) error({ refusal = code .. ' ' .. words }, 0) end

local function integer(value, what, least, most)
  if type(value) ~= 'number' or value % 1 ~= 0 or value < least or value > most then
    refuse('INVALID', string.format('%s must be a whole number from %.0f to %.0f, not %s', what, least, most,
      string.sub(tostring(value), 1, 40)))
  end
  return value
end

local function optional(value, what, least, most)
  if value ~= nil then integer(value, what, least, most) end
  return value
end

local function name(value, what, most, characters)
  if type(value) ~= 'string' or #value < 1 or #value > most or not string.find(value, '^[' .. characters .. ']+$') then
    refuse('INVALID', string.format('%s must be 1 to %d letters, digits or any of %s, not %q', what, most,
      (string.gsub(characters, '%%w?', '')), string.sub(tostring(value), 1, 40)))
  end
  return value
end

local function queue_name(value) return name(value, 'a queue', constants.MAX_NAME, '%w_.%-') end

local function job_id(value)
  if type(value) == 'string' and #value <= MAX_ID and string.find(value, '^[%w._:@/%-]+$') then return value end
  if type(value) == 'string' and string.find(value, '^[^~]+~%d%d?%d?%d?%d?$') then
    name(string.match(value, '^[^~]+'), 'a job id', MAX_ID, '%w._:@/%-')
    return value
  end
  return name(value, 'a job id', MAX_ID, '%w._:@/%-')
end

local function list_of(value, what, least)
  if type(value) ~= 'table' or #value < (least or 1) or #value > MAX_BATCH then
    refuse('INVALID', string.format('%s must be a list of %d to %d', what, least or 1, MAX_BATCH))
  end
  return value
end

-- A list of ids, all of them checked before anything is done about the first.
local function job_ids(value)
  for _, id in ipairs(list_of(value, 'ids')) do job_id(id) end
  return value
end

-- A list of ids in which none stands twice.
local function distinct_ids(value, what, least)
  local seen = {}
  for _, id in ipairs(list_of(value, what, least)) do
    if seen[job_id(id)] then refuse('INVALID', 'job ' .. id .. ' stands twice in `' .. what .. '`') end
    seen[id] = true
  end
  return value
end

-- An executor is `<node>/<worker>.<number>`; its worker is what stands before the dot. Up to 39 characters: the field of an
-- attempt then has 64 bytes.
local function executor_name(value)
  if type(value) ~= 'string' or #value > 39 or not string.find(value, '^[%w_.%-]+/%w+%.%d+$') then
    refuse('INVALID', 'an executor must be <node>/<worker>.<number>, not ' .. string.sub(tostring(value), 1, 60))
  end
  return value
end

local function worker_name(value)
  if type(value) ~= 'string' or not string.find(value, '^[%w_.%-]+/%w+$') then
    refuse('INVALID', 'a worker must be <node>/<worker>, not ' .. string.sub(tostring(value), 1, 60))
  end
  executor_name(value .. '.0')
  return value
end

local function worker_of(executor) return string.match(executor, '^(.+)%.(%d+)$') end

-- Add one value or two to the list that a batch has by this name. The batch is a list too, of the names.
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

local function event(kind, id)
  local ids = happened[kind]
  if ids then ids[#ids + 1] = id else collect(happened, kind, id) end
end

-- One entry per type of event, naming its jobs.
local function publish(who)
  for place = 1, #happened do
    local kind = happened[place]
    redis.call('XADD', key.events, 'MAXLEN', '~', core.setting('events'), '*', 'type', kind,
      'jobs', table.concat(happened[kind], ' '), 'who', who or '')
    happened[place], happened[kind] = nil, nil
  end
end

-- Numbers for jobs in the order in which they come, never given twice: returns the one before the first.
local function reserve_arrivals(count)
  if meta.new then redis.call('HSET', key.meta, 'schema', SCHEMA) end
  meta.new = false
  meta.arrivals = redis.call('HINCRBY', key.meta, 'arrivals', count)
  return meta.arrivals - count
end

local at_first = {} -- what the first call does, for no function of Lua can be called while the library is loaded

-- A call that must not be carried out twice has a token, made when the call was: the client library repeats a call whose
-- reply was lost. What was answered is kept for some minutes, so that the call repeated gets the same answer.
local REPLY_TTL = constants.REPLY_TTL

local function recall(token)
  local packed = redis.call('GET', key.answer(name(token, 'a token', 40, '%w')))
  return packed and cmsgpack.unpack(packed)
end

local function remember(token, reply) redis.call('SET', key.answer(token), cmsgpack.pack(reply), 'PX', REPLY_TTL) end

local function read_clock(args)
  if args.now then return args.now end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Signs say that there is something to look at: gaps (see lease.lua), config, resolving (see after.lua), changed (see
-- limit.lua), undefined (likewise), fair, refill (see schedule.lua), paused. They are one field, as JSON: so most calls look
-- for one that is not there, and not for eight.
local signs_read = false -- its text

local function set_sign(name, value)
  signs[name] = value
  signs_read = next(signs) and cjson.encode(signs)
  if not signs_read then return redis.call('HDEL', key.meta, 'signs') end
  redis.call('HSET', key.meta, 'schema', SCHEMA, 'signs', signs_read)
end

-- What of `meta` every call needs to know; then what those need who move time on, which storing jobs does not.
local function read_meta(is_brief)
  local values
  if is_brief then
    values = redis.call('HMGET', key.meta, 'schema', 'signs')
  else
    values = redis.call('HMGET', key.meta, 'schema', 'signs', 'arrivals', 'pulse', 'pruned', 'queues')
    meta.arrivals, meta.pulse = tonumber(values[3]) or 0, tonumber(values[4])
    meta.pruned, meta.queues = tonumber(values[5]) or 0, tonumber(values[6]) or 0
  end
  meta.new = not values[1]
  if values[1] and values[1] ~= SCHEMA then
    refuse('SCHEMA', string.format('this data has schema %s, and this release of Holdfast reads schema %s: use the release '
      .. 'that wrote the data, or another namespace', string.sub(values[1], 1, 40), SCHEMA))
  end
  if values[2] ~= signs_read then
    signs, signs_read = values[2] and cjson.decode(values[2]) or {}, values[2]
  end
  core.read_config(signs.config)
end

-- Arguments that come again and again, of calls that differ only in their blobs, are decoded and checked once: by their text.
local known_args = { count = 0 } -- and text -> arguments

local function know_args(text, args)
  if args.is_known or #text > 2000 then return end
  if known_args.count >= 500 then known_args = { count = 0 } end
  args.is_known, known_args[text], known_args.count = true, args, known_args.count + 1
end

local function read_args(text)
  local args = known_args[text]
  if args then return args end
  args = cjson.decode(text)
  args.is_known = nil -- a caller cannot say so
  return args
end

local function carry_out(body, is_brief, args, blobs)
  now = read_clock(args)
  read_meta(is_brief)
  local answer = args.token and recall(args.token)
  if answer then return answer end
  local reply, is_idle = body(args, blobs)
  if args.token and not is_idle then remember(args.token, reply) end
  return reply
end

-- Something failed that is not a refusal: what was written before must be whole. To the server's log, for nobody else may hear
-- of it.
local function recover(fault)
  redis.log(redis.LOG_WARNING, 'holdfast: ' .. tostring(fault))
  core.settle_after_failure()
  budget.has_failed = true
end

local function is_refusal(fault) return type(fault) == 'table' and fault.refusal end

-- Run a loop to its end, though something in it fails. It counts on by itself before it does anything, so that what fails for
-- one stops no other; `failed`, if given, is called for that one.
local function go_on_after_failures(loop, failed)
  while true do
    local done, fault = pcall(loop)
    if done then return end
    if is_refusal(fault) then error(fault, 0) end
    recover(fault)
    if failed then failed() end
  end
end

-- Do several things, each though another fails.
local function do_all(steps)
  local at = 0
  go_on_after_failures(function()
    while at < #steps do
      at = at + 1
      steps[at]()
    end
  end)
end

local ended_well = false -- whether the last call did

local function begin()
  redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall = globals()
  for _, make_ready in ipairs(at_first) do make_ready() end
end

-- Register a function of the library under a name that carries the library's digest, so that releases run side by
-- side. `body(args, blobs)` returns the reply, and whether nothing was done; a caller with a token that was answered
-- before gets that answer. `is_brief`: it needs little of `meta`.
local function verb(words, flags, body, is_brief)
  redis.register_function({
    function_name = 'hf_' .. DIGEST .. '_' .. words,
    flags = flags,
    callback = function(keys, argv)
      if not string then begin() end
      use_base(keys[1])
      core.begin_batch(ended_well)
      ended_well = false
      local done, reply = pcall(carry_out, body, is_brief, read_args(argv[1]), argv)
      ended_well = done
      if done then return reply end
      if is_refusal(reply) then return redis.error_reply(reply.refusal) end
      recover(reply)
      pcall(core.remember_failed_claim)
      pcall(publish)
      error(reply, 0)
    end,
  })
end

core.SCHEMA, core.MAX_BATCH, core.refuse, core.integer, core.optional, core.name = SCHEMA, MAX_BATCH, refuse, integer, optional, name
core.queue_name, core.job_id, core.list_of, core.job_ids, core.distinct_ids = queue_name, job_id, list_of, job_ids, distinct_ids
core.executor_name, core.worker_name, core.worker_of, core.collect = executor_name, worker_name, worker_of, collect
core.event, core.publish, core.reserve_arrivals, core.verb, core.know_args = event, publish, reserve_arrivals, verb, know_args
core.set_sign, core.at_first, core.go_on_after_failures, core.do_all = set_sign, at_first, go_on_after_failures, do_all
