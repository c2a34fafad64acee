-- batch_lists: what is known of batches, their members page by page, and waiting for their end. See batches.lua.
--
--   get_batches(names)                    a list of names and values for each batch: see `describe_batch`; nil if it does not exist
--   list_batches(states, limit, cursor)   the cursor of the next page (an empty list after the last one), then batches as above,
--                                         newest first. A page with `states` may be short, or empty
--   wait_for_batch(name, inbox)           the key of the inbox that gets `=` and the name when the batch is done, and its state.
--                                         The message is a hint: check again every few seconds
--
-- Errors: NOBATCH, INVALID.

local MAX_WAITERS, check_integer, marks = core.MAX_WAITERS, core.check_integer, core.marks
local check_list, check_name, rank_of, refuse = core.check_list, core.check_name, core.rank_of, core.refuse
local register, require_batch = core.register, core.require_batch
local DEFAULT_PAGE, MAX_BATCH = constants.DEFAULT_PAGE, constants.MAX_BATCH

local CALLBACKS = { 'done', 'succeeded', 'failed' }
local NUMBERS = { 'created', 'closed', 'done', 'cancelling', 'keep', 'succeeded', 'failed', 'cancelled' }
local STATES = { open = true, closed = true, done = true }

-- What is read of a record: all but the payloads of callbacks, which may be long.
local FIELDS = {
  'state', 'created', 'closed', 'done', 'cancelling', 'keep', 'succeeded', 'failed', 'cancelled',
  'id:done', 'job:done', 'id:succeeded', 'job:succeeded', 'id:failed', 'job:failed',
}

-- The task of a callback; '' if what is stored of it cannot be read.
local function task_of(text)
  local is_whole, callback = pcall(cjson.decode, text or '')
  return is_whole and type(callback) == 'table' and type(callback.task) == 'string' and callback.task or ''
end

-- A time or a count; 0 if it is none that a client can read.
local function number_of(text)
  local number = tonumber(text or nil)
  return number and number >= 0 and number < 2 ^ 43 and number or 0
end

local function describe_batch(name)
  local values, fields, reply = redis.call('HMGET', key.batch_record(name), unpack(FIELDS)), {}, { 'name', name }
  for place, field in ipairs(FIELDS) do fields[field] = values[place] end
  if not fields.state then return false end
  for _, field in ipairs(NUMBERS) do
    reply[#reply + 1], reply[#reply + 2] = field, number_of(fields[field])
  end
  for _, part in ipairs({ 'state', fields.state, 'open', redis.call('SCARD', key.open_members(name)),
    'records', redis.call('ZCARD', key.batch(name)), 'expires', number_of(redis.call('ZSCORE', key.batches_done(), name)) }) do
    reply[#reply + 1] = part
  end
  local callbacks = {}
  for _, on in ipairs(CALLBACKS) do
    if fields['id:' .. on] then callbacks[#callbacks + 1] = { on, fields['id:' .. on], task_of(fields['job:' .. on]) } end
  end
  reply[#reply + 1], reply[#reply + 2] = 'callbacks', callbacks
  return reply
end

register('get_batches', { 'no-writes' }, function(args)
  local reply = {}
  for place, name in ipairs(check_list(args.names, 'names')) do reply[place] = describe_batch(marks.check_batch(name)) end
  return reply
end)

local function check_page(args, cursor_size)
  local cursor = args.cursor
  if cursor and (type(cursor) ~= 'table' or #cursor ~= cursor_size or not tonumber(cursor[1]) or type(cursor[2]) ~= 'string') then
    refuse('INVALID', 'expected the cursor of an earlier page')
  end
  return check_integer(args.limit or DEFAULT_PAGE, 'the limit', 1, MAX_BATCH)
end

-- States as a set, or nil.
local function wanted_states(states)
  if not states then return nil end
  local wanted = {}
  for _, state in ipairs(states) do wanted[state] = true end
  return wanted
end

register('list_batches', { 'no-writes' }, function(args)
  local limit, cursor, index = check_page(args, 2), args.cursor, key.batches()
  for _, state in ipairs(args.states or {}) do
    if not STATES[state] then refuse('INVALID', 'unknown state ' .. tostring(state) .. "; expected open, closed or done") end
  end
  local wanted, reply = wanted_states(args.states), { {} }
  local before = cursor and rank_of(index, cursor[1], cursor[2]) or redis.call('ZCARD', index)
  if before == 0 then return reply end
  local first = math.max(0, before - limit)
  local page = redis.call('ZRANGE', index, first, before - 1, 'WITHSCORES')
  for place = #page - 1, 1, -2 do
    local batch = (not wanted or wanted[redis.call('HGET', key.batch_record(page[place]), 'state')]) and describe_batch(page[place])
    if batch then reply[#reply + 1] = batch end
  end
  if first > 0 then reply[1] = { page[2], page[1] } end
  return reply
end)

local function add_inbox(name, inbox)
  local waiters = redis.call('HGET', key.batch_record(name), 'waiters') or ''
  if string.find(' ' .. waiters .. ' ', ' ' .. inbox .. ' ', 1, true) then return end
  local _, count = string.gsub(waiters, '%S+', '')
  if count >= MAX_WAITERS then waiters = string.gsub(waiters, '^%S+ ', '') end -- it asks again in a few seconds
  redis.call('HSET', key.batch_record(name), 'waiters', waiters == '' and inbox or waiters .. ' ' .. inbox)
end

register('wait_for_batch', { 'allow-oom' }, function(args)
  check_name(args.inbox, 'an inbox', 40, '%w')
  local state = require_batch(args.name)
  if state ~= 'done' then add_inbox(args.name, args.inbox) end
  return { key.inbox(args.inbox), state }
end)
