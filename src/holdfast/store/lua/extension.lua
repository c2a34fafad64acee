-- extension: run functions of the app's own Lua, which call those of the library.
--
--   call(name, arguments, calls, adder, token), blobs: ids separated by spaces, then a payload for each of `calls`
--     name           the name under which the app's Lua has registered it
--     arguments      a list of JSON values; null is nil. In it, `{"holdfast.call": n}` stands for the n-th of `calls`, and
--                    `{"holdfast.item": [executor, id, attempt, created]}` for an item that the caller holds
--     calls          jobs that the function may enqueue: each a batch as in enqueue.lua, with one job and its `on_exists`
--     adder          the id of the running job that makes this call; see enqueue.lua
--     token          see call.lua: the function runs once, unless it fails. Ids of jobs that have none are made of it
--   query(name, arguments)   the same for a function that writes nothing
--
-- Errors: INVALID; NOFUNCTION; REFUSED, a code and a text, if the function refuses; LUA if it fails; TOOBIG for the reply; and
-- those of the functions that it calls. What it wrote before an error stays: so it checks first, and writes afterwards.
--
-- Returns the value of the function as JSON, then the ids of the items that it ended.
--
-- The text of the app's files follows the library, see library.py. Each is a chunk of its own, so it sees only globals, and the
-- table `holdfast`: docs/extending.md describes it. Within VERSION, nothing in it changes or is removed. Instead of the server's
-- `redis` and `cjson` it sees copies without the functions that change them for the library, or for all libraries.

local VERSION = 1

local action, add_note, apply_to_each = core.action, core.add_note, core.apply_to_each
local check_action, check_id, check_integer = core.check_action, core.check_id, core.check_integer
local check_list, check_name, check_queue = core.check_list, core.check_name, core.check_queue
local enqueue, finish_items, flush = core.enqueue, core.finish_items, core.flush
local is_refusal, publish_events, recover = core.is_refusal, core.publish_events, core.recover
local refuse, register, require_job = core.refuse, core.register, core.require_job
local MAX_BATCH, MAX_NOTE = constants.MAX_BATCH, constants.MAX_NOTE
local MAX_ERROR_TEXT, MAX_LEVELS = 500, 12 -- of a message; of the call stack, from which a position is read

local ACTIONS = { 'cancel', 'retry', 'move', 'release', 'fail', 'delete', 'tag', 'untag' }
-- What the app's Lua may say about a job: options of a batch in enqueue.lua, and those of the job itself.
local OPTIONS = {
  queue = true, priority = true, delay = true, at = true, retries = true, crashes = true, lost = true, backoff = true,
  timeout = true, unique = true, unique_for = true, keep = true, fields = true, at_most_once = true, after = true,
  on_failed = true, limits = true, tags = true, scope = true, batch = true, share = true, deadline = true,
  deadline_at = true, on_exists = true,
}
local EXCLUDES = { delay = 'at', at = 'delay', deadline = 'deadline_at', deadline_at = 'deadline' }
local OF_NEW_JOB = { id = true, task = true, codec = true, payload = true }

-- What would change replies that the library reads, what is replicated, or how all libraries of the server read JSON.
local HIDDEN = {
  redis = { register_function = true, setresp = true, set_repl = true },
  cjson = {
    decode_array_with_array_mt = true, decode_invalid_numbers = true, decode_max_depth = true, encode_escape_forward_slash = true,
    encode_invalid_numbers = true, encode_keep_buffer = true, encode_max_depth = true, encode_number_precision = true,
    encode_sparse_array = true,
  },
}

core.extension_files = {} -- replaced behind the library: a list of names and texts

local api = {} -- what `holdfast` has
local files -- name -> true, of the app's files, once they have been run
local functions -- name -> function
local running -- the call that is executed: its arguments, blobs, known calls and items, and the number of ids made

-- Errors

-- Whether a text names a line of the app's Lua at its beginning.
local function is_position(text) return files[string.match(text, '^(.-):%d+: ') or ''] ~= nil end

-- Whether a fault ends the call with an error code. The app's Lua may throw any table.
local function has_code(fault)
  local refusal = type(fault) == 'table' and rawget(fault, 'refusal')
  return type(refusal) == 'string' and string.find(refusal, '^%u+ ') ~= nil
end

-- Describe an error of the app's Lua. Some name no line, for example those of the server: find it in the call stack.
local function describe_fault(fault)
  if has_code(fault) then return fault end
  local text = tostring(type(fault) == 'table' and rawget(fault, 'err') or fault)
  if is_position(text) then return text end
  for level = 2, MAX_LEVELS do
    local _, place = pcall(error, '', level)
    if is_position(place) then return place .. text end
  end
  return text
end

-- Write what was collected before an error, and announce it.
local function settle()
  flush()
  publish_events()
  if changed_counts then core.marks.store_counts() end
end

local function fail(fault)
  settle()
  if has_code(fault) then error(fault, 0) end
  refuse('LUA', (string.gsub(string.sub(tostring(fault), 1, MAX_ERROR_TEXT), '%c', ' ')))
end

-- A function of `holdfast`. If it fails halfway, its writes are completed before the app's Lua goes on.
local function guarded(name, body)
  return function(...)
    if not running then error('holdfast.' .. name .. ' can only be called by a function that is running', 2) end
    local results = { pcall(body, ...) }
    if results[1] then return unpack(results, 2) end
    if not is_refusal(results[2]) then recover(results[2]) end
    error(results[2], 0)
  end
end

-- Jobs

local function copy(from, to)
  for name, value in pairs(from) do to[name] = value end
  return to
end

local function set_options(job, options, allowed)
  if type(options) ~= 'table' then refuse('INVALID', 'options of a job must be a table') end
  for name, value in pairs(options) do
    if not OPTIONS[name] and not (allowed and allowed[name]) then
      refuse('INVALID', 'unknown option of a job: ' .. string.sub(tostring(name), 1, 40))
    end
    job[name] = value
    if EXCLUDES[name] then job[EXCLUDES[name]] = nil end
  end
  return job
end

local function next_id()
  running.made = running.made + 1
  return string.format('%s-%d', running.token, running.made)
end

-- The batch of one job, and its payload.
local function read_job(description, options)
  if type(description) ~= 'table' then
    refuse('INVALID', 'expected a call, or a table with `task` and `payload`, not ' .. type(description))
  end
  local place, job, payload = running.calls[description], nil, nil
  if place then
    job, payload = copy(running.args.calls[place], {}), running.blobs[place + 2]
    job.ids = { running.ids[place] }
  else
    job, payload = set_options({}, description, OF_NEW_JOB), description.payload
    if type(payload) ~= 'string' then refuse('INVALID', 'a job needs a `payload`, which is text') end
    job.ids, job.id, job.payload = { job.id or next_id() }, nil, nil
  end
  return set_options(job, options or {}), payload
end

-- The id of a job, and whether this call has stored it.
local function read_answer(answer, id)
  if type(answer) == 'number' then return id, answer == 1 end
  return string.sub(answer, 2), string.sub(answer, 1, 1) == '+'
end

function api.enqueue_all(descriptions, options)
  if not running.token then refuse('INVALID', 'a query cannot enqueue jobs; use call') end
  local batches, blobs, on_exists = {}, { '', '' }, nil
  for place, description in ipairs(check_list(descriptions, 'the jobs')) do
    local job, payload = read_job(description, options)
    on_exists = on_exists or job.on_exists or 'return'
    if (job.on_exists or 'return') ~= on_exists then
      refuse('INVALID', 'jobs that are enqueued together must have the same `on_exists`')
    end
    job.on_exists = nil
    batches[place], blobs[place + 2] = job, payload
  end
  local reply = enqueue({ batches = batches, on_exists = on_exists, adder = running.args.adder }, blobs)
  local ids, stored = {}, {}
  for place, job in ipairs(batches) do ids[place], stored[place] = read_answer(reply[place + 1], job.ids[1]) end
  return ids, stored
end

function api.enqueue(description, options)
  local ids, stored = api.enqueue_all({ description }, options)
  return ids[1], stored[1]
end

local function act(name, id, options)
  if type(options or {}) ~= 'table' then
    refuse('INVALID', 'options of ' .. name .. ' must be a table, not ' .. type(options))
  end
  local args = copy(options or {}, {})
  args.ids = { check_id(id) }
  if check_action[name] then check_action[name](args) end
  return apply_to_each(name, args, args.ids)[1]
end

function api.note(id, text)
  if type(text) ~= 'string' or text == '' or #text > MAX_NOTE then
    refuse('INVALID', string.format('a note must be 1 to %d bytes of text', MAX_NOTE))
  end
  add_note(require_job(check_id(id)), 'N', text)
end

function api.get(id)
  local list, job = core.describe(check_id(id), true), {}
  if not list then return nil end
  for place = 1, #list, 2 do job[list[place]] = list[place + 1] end
  return job
end

function api.count(queue, state)
  for _, known in ipairs(core.STATES) do
    if known == state then return redis.call('ZCARD', core.index_key(check_queue(queue), state)) end
  end
  refuse('INVALID', 'unknown state ' .. string.sub(tostring(state), 1, 40))
end

-- Items

local function end_item(item, outcome, blob)
  local held = type(item) == 'table' and running.items[item]
  if not held then refuse('INVALID', 'expected an item that the caller has passed') end
  outcome.id, outcome.attempt, outcome.created, outcome.blob = held[2], held[3], held[4], true
  local answer = finish_items({ executor = held[1], items = { outcome }, token = running.token }, { '', blob })[1]
  if answer == 'OK' then running.ended[#running.ended + 1] = held[2] end
  if answer == 'OK' or answer == 'LOST' then return answer == 'OK' end
  refuse(answer, 'item ' .. held[2] .. ' cannot be ended so')
end

function api.complete(item, result)
  if type(result or '') ~= 'string' then refuse('INVALID', 'the result of an item must be text') end
  return end_item(item, { outcome = 'succeed' }, result or '')
end

-- The rest

function api.now() return now end

function api.key(name) return key.own(check_name(name, 'a key', constants.MAX_ID, '%w._:@/%-')) end

local function refuse_for_app(code, text)
  check_name(code, 'the code of a refusal', constants.MAX_NAME, '%w_.%-')
  refuse('REFUSED', code .. ' ' .. string.gsub(string.sub(tostring(text or ''), 1, MAX_ERROR_TEXT), '%c', ' '))
end

local function register_for_app(name, body)
  if running then error('holdfast.register can only be called while the file is loaded', 2) end
  if type(body) ~= 'function' then error('holdfast.register needs a name and a function', 2) end
  check_name(name, 'a function', constants.MAX_NAME, '%w_.:%-')
  if functions[name] then error('function ' .. name .. ' is registered twice', 2) end
  functions[name] = body
end

local function read_only(name, values)
  setmetatable(values, {
    __index = function(_, field) error('there is no ' .. name .. '.' .. tostring(field), 2) end,
  })
  return setmetatable({}, {
    __metatable = false,
    __index = values,
    __newindex = function(_, field) error(name .. '.' .. tostring(field) .. ' cannot be set', 2) end,
  })
end

-- What the app's Lua sees: nothing in it can be changed.
local function new_table()
  local shown = { version = VERSION, register = register_for_app, refuse = refuse_for_app }
  for name, body in pairs(api) do shown[name] = guarded(name, body) end
  for _, name in ipairs(ACTIONS) do
    shown[name] = guarded(name, function(id, options) return act(name, id, options) end)
  end
  return read_only('holdfast', shown)
end

-- A global of the server without its hidden functions.
local function without_hidden(name, from)
  local shown = {}
  for field, value in pairs(from) do
    if not HIDDEN[name][field] then shown[field] = value end
  end
  return read_only(name, shown)
end

local function load_files()
  local holdfast, server, json = new_table(), without_hidden('redis', redis), without_hidden('cjson', cjson)
  for _, file in ipairs(core.extension_files) do
    files[file[1]] = true
    local chunk, fault = loadstring('local holdfast, redis, server, cjson = ...; ' .. file[2], '=' .. file[1])
    if not chunk then refuse('LUA', fault) end
    local done, reason = xpcall(function() chunk(holdfast, server, server, json) end, describe_fault)
    if not done then fail(reason) end
  end
end

local function find_function(name)
  if not functions then
    files, functions, running = {}, {}, nil
    local done, fault = pcall(load_files)
    if not done then
      functions = nil -- the next call gets the same error
      error(fault, 0)
    end
  end
  check_name(name, 'a function', constants.MAX_NAME, '%w_.:%-')
  return functions[name] or refuse('NOFUNCTION', 'no Lua file of the app has registered a function ' .. name)
end

local function check_held(held)
  if type(held) ~= 'table' then refuse('INVALID', 'an item must be a list of executor, id, attempt and creation') end
  core.check_executor(held[1])
  check_id(held[2])
  check_integer(held[3], 'the attempt', 1, 2 ^ 31)
  return held
end

-- Replace what stands for calls and items, so that the app's Lua cannot make one up.
local function resolve(value)
  if type(value) ~= 'table' then return value end
  local place, held = value['holdfast.call'], value['holdfast.item']
  if place then
    local call = running.args.calls and running.args.calls[place]
    if not call then refuse('INVALID', 'there is no such call: ' .. string.sub(tostring(place), 1, 40)) end
    local shown = { id = running.ids[place], task = call.task, queue = call.queue }
    running.calls[shown] = place
    return shown
  elseif held then
    local shown = { id = check_held(held)[2] }
    running.items[shown] = held
    return shown
  end
  for name, part in pairs(value) do value[name] = resolve(part) end
  return value
end

local function read_arguments(args)
  local list = args.arguments or {}
  if type(list) ~= 'table' or #list > MAX_BATCH then
    refuse('INVALID', string.format('arguments must be a list of up to %d', MAX_BATCH))
  end
  local count, values = #list, {}
  for place = 1, count do
    if list[place] ~= cjson.null then values[place] = resolve(list[place]) end
  end
  return values, count
end

local function read_ids(args, text)
  local ids = {}
  for id in string.gmatch(text or '', '%S+') do ids[#ids + 1] = check_id(id) end
  if #ids ~= #check_list(args.calls or {}, 'calls', 0) then refuse('INVALID', 'expected an id for each of `calls`') end
  return ids
end

-- The value that a function returns, as JSON.
local function encode(value, limit)
  if value == nil then return 'null' end
  local done, text = pcall(cjson.encode, value)
  if not done then refuse('LUA', 'the function returned what cannot be JSON: ' .. tostring(text)) end
  if #text > limit then
    refuse('TOOBIG', string.format('the function returned %d bytes of JSON (limit %d)', #text, limit))
  end
  return text
end

local function run(args, blobs, limit)
  local body = find_function(args.name)
  running = { args = args, blobs = blobs, token = args.token, made = 0, calls = {}, items = {}, ended = {} }
  running.ids = read_ids(args, blobs[2])
  local values, count = read_arguments(args)
  local done, value = xpcall(function() return body(unpack(values, 1, count)) end, describe_fault)
  if done then done, value = pcall(encode, value, limit) end
  local ended = running.ended
  running = nil
  if not done then fail(value) end
  settle()
  return { value, unpack(ended) }
end

register('call', {}, function(args, blobs)
  if not args.token then refuse('INVALID', 'a call needs a `token`') end
  return run(args, blobs, constants.MAX_CALL_REPLY)
end)

register('query', { 'no-writes' }, function(args, blobs)
  args.token = nil
  return run(args, blobs, constants.MAX_RESULT)
end)
