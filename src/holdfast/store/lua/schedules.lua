-- schedules: enqueue jobs repeatedly.
--
-- A schedule fires at times that a worker computes (it knows calendars), or at an interval that is computed here. Its next
-- time is a timer, `&name`; calls that advance time fire it. The job's id is the name, `@` and the time, so no time fires
-- twice. When few times are left, workers are asked for more (see renew.lua).
--
-- An app declares its schedules; a declared schedule is a default. One that is made by hand overrides the default until it is
-- reset: the fields of the declaration are kept meanwhile, as `default:<field>`. Only a declaration has a revision.
--
--   schedule(name, spec, batch, times or every and offset, missed, backlog, late, overlap, jitter), blob: payload
--     spec       what workers need to compute times, as text
--     batch      the job, as in enqueue.lua, without ids
--     times      the next times, in order (none: workers are asked); every, offset: an interval, and a time at which it fires
--     missed     which of several due times fire: 'one' (the last), 'all' (the last `backlog`), 'skip' (none more than
--                `late` milliseconds ago, one minute by default)
--     overlap    'allow', or 'skip' if the previous job has not ended
--     jitter     up to this many milliseconds later, constant for a given time
--     If spec, every and offset are unchanged and no times are given, the schedule keeps its times
--   declare_schedule(the same, revision), blob: payload   an older revision does not replace a newer one. Returns 0 if nothing
--                                    changed, 1 if it applies now, 2 if a schedule that was made by hand still applies
--   reset_schedule(name)             what is declared applies again
--   refill(name, expected, times)    append times, if the last known one is `expected`
--   unschedule(name)  pause_schedule(name)  resume_schedule(name)  trigger(name): enqueue a job now
--   schedules(names or after)        list schedules by name, or those after a name; up to 1,000, or 32 MiB; each as a list of
--                                    names and values, including `now`
--
-- Errors: NOSCHEDULE, INVALID, TOOBIG, STATE (an older revision; nothing is declared that a reset could return to). Functions
-- return 1 if they changed something; `trigger` returns the id of the job.

local FINAL, SECOND, check_batch, check_integer = core.FINAL, core.SECOND, core.check_batch, core.check_integer
local check_list, check_name, emit_about, enqueue = core.check_list, core.check_name, core.emit_about, core.enqueue
local load_job, publish_events, refuse, register = core.load_job, core.publish_events, core.refuse, core.register
local set_marker = core.set_marker
local MAX_BACKLOG, MAX_BATCH, MAX_DURATION = constants.MAX_BACKLOG, constants.MAX_BATCH, constants.MAX_DURATION
local MIN_TIMES_AHEAD = constants.MIN_TIMES_AHEAD

local MAX_TIMES, MAX_SCHEDULES, MAX_FIRINGS = 500, 10000, 100
local MAX_SPEC = 4096 -- bytes
local MAX_REPLY = 33554432 -- bytes of one reply
local SAMPLE = 5 -- schedules checked for a missing timer at once
local MISSED = { one = true, all = true, skip = true }
local OVERLAP = { allow = true, skip = true }
local DECLARED = { 'spec', 'batch', 'payload', 'missed', 'backlog', 'late', 'overlap', 'jitter', 'revision', 'every', 'offset' }

local BATCH_OPTIONS = { queue = true, task = true, priority = true, retries = true, crashes = true, lost = true, backoff = true,
  timeout = true, codec = true, limits = true, share = true, deadline = true, run = true, keep = true, at_most_once = true,
  fields = true, tags = true, scope = true, timeouts = true, stalls = true, out_of_memory = true }

local function schedule_name(value) return check_name(value, 'a schedule', constants.MAX_NAME, '%w_.:%-') end

local function parse_times(text)
  local times = {}
  for time in string.gmatch(text or '', '%d+') do times[#times + 1] = tonumber(time) end
  return times
end

local function format_times(times, first)
  local parts = {}
  for place = first or 1, #times do parts[#parts + 1] = string.format('%.0f', times[place]) end
  return table.concat(parts, ' ')
end

local function load_schedule(name)
  local list, fields = redis.call('HGETALL', key.schedule(name)), nil
  for place = 1, #list, 2 do
    fields = fields or {}
    fields[list[place]] = list[place + 1]
  end
  return fields
end

local function require_schedule(name)
  local schedule = load_schedule(schedule_name(name))
  if not schedule then refuse('NOSCHEDULE', 'schedule ' .. name .. ' does not exist') end
  return schedule
end

-- Enqueue a job of a schedule. Returns whether it is new.
local function enqueue_occurrence(schedule, id, due)
  local batch = cjson.decode(schedule.batch)
  batch.ids, batch.at = { id }, due
  local reply = enqueue({ batches = { batch }, on_exists = 'return' }, { '', id, schedule.payload })
  schedule.job = id
  return reply[2] == 1
end

local function next_known(schedule)
  return schedule.every and tonumber(schedule.next) or parse_times(schedule.times)[1]
end

local function set_next(name, schedule, next_time)
  if not next_time or schedule.paused == '1' then return redis.call('ZREM', key.timers, '&' .. name) end
  redis.call('ZADD', key.timers, next_time, '&' .. name)
end

local function request_times(name, schedule, left)
  if schedule.every or left >= MIN_TIMES_AHEAD then return end
  redis.call('SADD', key.refill(), name)
  if not markers.refill then set_marker('refill', 1) end
end

-- The due times (the last MAX_BACKLOG), their number, and the next one; for a list of times also the remaining ones.
local function due_times(schedule)
  if schedule.every then
    local every, next_time = tonumber(schedule.every), tonumber(schedule.next)
    local count = next_time <= now and math.floor((now - next_time) / every) + 1 or 0
    local times = {}
    for at = math.max(0, count - MAX_BACKLOG), count - 1 do times[#times + 1] = next_time + at * every end
    return times, count, next_time + count * every
  end
  local times, due = parse_times(schedule.times), {}
  while times[#due + 1] and times[#due + 1] <= now do due[#due + 1] = times[#due + 1] end
  return due, #due, times[#due + 1], format_times(times, #due + 1)
end

-- The due times that fire.
local function choose(schedule, due)
  local first = #due -- the last one
  if schedule.missed == 'all' then first = math.max(1, #due - tonumber(schedule.backlog) + 1) end
  local chosen = {}
  for place = math.max(first, 1), #due do
    if schedule.missed ~= 'skip' or now - due[place] <= tonumber(schedule.late) then chosen[#chosen + 1] = due[place] end
  end
  return chosen
end

local function is_running(schedule)
  if schedule.overlap ~= 'skip' or not schedule.job then return false end
  local last, fault = load_job(schedule.job)
  return last and not FINAL[last.state] or fault == 'NEWER' or fault == 'DAMAGED'
end

-- Enqueue a job while time is advanced, which a refusal must not stop.
local function try_enqueue(schedule, id, due)
  local done, is_new = pcall(enqueue_occurrence, schedule, id, due)
  if not done and type(is_new) ~= 'table' then error(is_new, 0) end
  return done and is_new
end

local function jittered(name, time, jitter)
  if jitter == 0 then return time end
  return time + tonumber(string.sub(redis.sha1hex(name .. string.format('%.0f', time)), 1, 8), 16) % (jitter + 1)
end

-- Enqueue a job for each time. Returns how many are new.
local function fire_all(name, schedule, times)
  local fired = 0
  for _, time in ipairs(times) do
    if not is_running(schedule) and try_enqueue(schedule, name .. '@' .. string.format('%.0f', time),
      jittered(name, time, tonumber(schedule.jitter))) then
      fired = fired + 1
    end
  end
  return fired
end

-- Split many firings: the first ones now, the others with the next call.
local function split_times(chosen, next_time, rest)
  if #chosen <= MAX_FIRINGS then return next_time, rest end
  local later = format_times(chosen, MAX_FIRINGS + 1)
  local first = chosen[MAX_FIRINGS + 1]
  for place = #chosen, MAX_FIRINGS + 1, -1 do chosen[place] = nil end
  return first, rest and (rest == '' and later or later .. ' ' .. rest)
end

local function fire(name)
  local schedule = load_schedule(name)
  if not schedule or schedule.paused == '1' then return end
  if budget.fired <= 0 then return set_next(name, schedule, next_known(schedule)) end -- with the next call
  local due, count, next_time, rest = due_times(schedule)
  local chosen = choose(schedule, due)
  local dropped = count - #chosen
  next_time, rest = split_times(chosen, next_time, rest)
  budget.fired = budget.fired - #chosen
  local fired = fire_all(name, schedule, chosen)
  local fields = { 'job', schedule.job or '', 'fired', string.format('%.0f', tonumber(schedule.fired or 0) + fired),
    'skipped', string.format('%.0f', tonumber(schedule.skipped or 0) + dropped + #chosen - fired), 'at', now }
  local last = chosen[#chosen] or due[#due]
  if last then fields[#fields + 1], fields[#fields + 2] = 'last', string.format('%.0f', last) end
  if schedule.every then
    fields[#fields + 1], fields[#fields + 2] = 'next', string.format('%.0f', next_time)
  else
    fields[#fields + 1], fields[#fields + 2] = 'times', rest
    local _, left = string.gsub(rest, '%d+', '')
    request_times(name, schedule, left)
  end
  redis.call('HSET', key.schedule(name), unpack(fields))
  set_next(name, schedule, next_time)
  if fired > 0 then emit_about('fired', name) end
end

-- Set missing timers of some random schedules.
local function repair_schedules()
  for _, name in ipairs(redis.call('ZRANDMEMBER', key.schedules(), SAMPLE)) do
    if not redis.call('ZSCORE', key.timers, '&' .. name) then
      local values = redis.call('HMGET', key.schedule(name), 'paused', 'every', 'next', 'times')
      local schedule = { paused = values[1], every = values[2], next = values[3], times = values[4] }
      set_next(name, schedule, next_known(schedule))
    end
  end
end

-- When a schedule fires next; nil if it is paused, has no times, or does not exist.
local function next_firing(name)
  local values = redis.call('HMGET', key.schedule(name), 'paused', 'every', 'next', 'times')
  if values[1] == '1' then return nil end
  return next_known({ every = values[2], next = values[3], times = values[4] }) or nil
end

local function check_times(times)
  if #check_list(times, 'times', 0) > MAX_TIMES then
    refuse('INVALID', string.format('more than %d times', MAX_TIMES))
  end
  for place, time in ipairs(times) do
    check_integer(time, 'a time', 0, 2 ^ 47)
    if place > 1 and time <= times[place - 1] then refuse('INVALID', '`times` must be in ascending order') end
  end
  return times
end

local function check_size(text, what, max)
  if type(text) ~= 'string' then refuse('INVALID', what .. ' must be a text') end
  if #text > max then refuse('TOOBIG', string.format('%s is %d bytes (limit %d)', what, #text, max)) end
end

-- Check the batch of jobs that are enqueued later, each with an id of its own, for something with a name.
local function check_template(batch, name, what)
  if type(batch) ~= 'table' then refuse('INVALID', '`batch` must be a table') end
  for field in pairs(batch) do
    if not BATCH_OPTIONS[field] then
      refuse('INVALID', '`' .. tostring(field) .. '` does not apply to the jobs of a ' .. what)
    end
  end
  batch.ids = { name }
  check_batch(batch)
  batch.ids = nil
end

local function check_schedule(args, payload)
  schedule_name(args.name)
  check_template(args.batch, args.name, 'schedule')
  if not payload then refuse('INVALID', 'schedule ' .. args.name .. ' has no payload') end
  check_size(payload, 'the payload of schedule ' .. args.name, constants.MAX_PAYLOAD)
  check_size(args.spec or '', '`spec`', MAX_SPEC)
  if args.every then
    check_integer(args.every, '`every`', constants.MIN_INTERVAL, MAX_DURATION)
    check_integer(args.offset or 0, '`offset`', 0, 2 ^ 47)
  else
    check_times(args.times or {})
  end
  if not MISSED[args.missed or 'one'] then refuse('INVALID', "`missed` must be 'one', 'all' or 'skip'") end
  if not OVERLAP[args.overlap or 'allow'] then refuse('INVALID', "`overlap` must be 'allow' or 'skip'") end
  check_integer(args.backlog or constants.DEFAULT_BACKLOG, 'the backlog', 1, MAX_BACKLOG)
  check_integer(args.late or 60 * SECOND, '`late`', 0, MAX_DURATION)
  check_integer(args.jitter or 0, 'the jitter', 0, constants.MAX_JITTER)
  if args.batch.deadline and args.batch.deadline <= (args.jitter or 0) then
    refuse('INVALID', 'the deadline must be longer than the jitter')
  end
end

-- The first time of an interval that is not in the past.
local function first_time(args)
  local offset = args.offset or 0
  return offset + math.max(0, math.ceil((now - offset) / args.every)) * args.every
end

-- JSON with the names of each object sorted: the same for equal values, so that declarations can be compared.
local function encode_sorted(value)
  if type(value) ~= 'table' or #value > 0 or next(value) == nil then return cjson.encode(value) end
  local names, parts = {}, {}
  for name in pairs(value) do names[#names + 1] = name end
  table.sort(names)
  for place, name in ipairs(names) do parts[place] = cjson.encode(name) .. ':' .. encode_sorted(value[name]) end
  return '{' .. table.concat(parts, ',') .. '}'
end

-- What a schedule consists of, besides its times.
local function schedule_fields(args, payload)
  return { spec = args.spec or '', batch = encode_sorted(args.batch), payload = payload, missed = args.missed or 'one',
    backlog = tostring(args.backlog or constants.DEFAULT_BACKLOG), late = string.format('%.0f', args.late or 60 * SECOND),
    overlap = args.overlap or 'allow', jitter = tostring(args.jitter or 0),
    revision = args.revision and string.format('%.0f', args.revision), every = args.every and string.format('%.0f', args.every),
    offset = args.every and string.format('%.0f', args.offset or 0) }
end

-- The times of a new schedule. Past times were not missed: it did not exist.
local function first_times(fields, times)
  if fields.every then
    return 'next', string.format('%.0f', first_time({ every = tonumber(fields.every), offset = tonumber(fields.offset) }))
  end
  local first = 1
  while times[first] and times[first] <= now do first = first + 1 end
  return 'times', format_times(times, first)
end

-- Whether some fields, with this prefix, are the same as others.
local function is_same(known, prefix, fields)
  for _, field in ipairs(DECLARED) do
    if known[prefix .. field] ~= fields[field] then return false end
  end
  return true
end

-- Write some fields with this prefix, and remove those that are missing.
local function write_fields(name, prefix, fields)
  for _, field in ipairs(DECLARED) do
    if fields[field] then
      redis.call('HSET', key.schedule(name), prefix .. field, fields[field])
    else
      redis.call('HDEL', key.schedule(name), prefix .. field)
    end
  end
end

local function fields_of(known, prefix)
  local fields = {}
  for _, field in ipairs(DECLARED) do fields[field] = known[prefix .. field] end
  return fields
end

-- Make a schedule consist of these fields. One with the same times as before keeps them, including missed ones: a deploy
-- may follow an outage.
local function apply(name, known, fields, times)
  local keeps = known and known.spec == fields.spec and known.every == fields.every and known.offset == fields.offset
    and #times == 0
  write_fields(name, '', fields)
  if not keeps then
    redis.call('HDEL', key.schedule(name), 'next', 'times')
    redis.call('HSET', key.schedule(name), 'since', now, first_times(fields, times))
  end
  redis.call('ZADD', key.schedules(), 0, name)
  local schedule = load_schedule(name)
  set_next(name, schedule, next_known(schedule))
  request_times(name, schedule, #parse_times(schedule.times))
end

local function has_changed(name)
  emit_about('configured', name, { 'schedule' })
  publish_events()
end

local function check_count(known)
  if not known and redis.call('ZCARD', key.schedules()) >= MAX_SCHEDULES then
    refuse('INVALID', string.format('there are already %d schedules (the limit)', MAX_SCHEDULES))
  end
end

register('schedule', {}, function(args, blobs)
  args.revision = nil
  check_schedule(args, blobs[2])
  local known, fields = load_schedule(args.name), schedule_fields(args, blobs[2])
  if known and is_same(known, '', fields) then return 0 end
  check_count(known)
  if known and known.revision then write_fields(args.name, 'default:', fields_of(known, '')) end
  apply(args.name, known, fields, args.times or {})
  has_changed(args.name)
  return 1
end)

register('declare_schedule', {}, function(args, blobs)
  args.revision = check_integer(args.revision or 0, 'the revision', 0, 2 ^ 52)
  check_schedule(args, blobs[2])
  local known, fields = load_schedule(args.name), schedule_fields(args, blobs[2])
  local is_by_hand = known and not known.revision
  local prefix = is_by_hand and 'default:' or ''
  local revision = known and known[prefix .. 'revision']
  if revision and tonumber(revision) > args.revision then
    refuse('STATE', 'schedule ' .. args.name .. ' was declared by a newer release, revision ' .. revision)
  end
  if known and is_same(known, prefix, fields) then return 0 end
  check_count(known)
  if is_by_hand then write_fields(args.name, prefix, fields) else apply(args.name, known, fields, args.times or {}) end
  has_changed(args.name)
  return is_by_hand and 2 or 1
end)

register('reset_schedule', {}, function(args)
  local known = require_schedule(args.name)
  if known.revision then return 0 end
  if not known['default:revision'] then
    refuse('STATE', 'schedule ' .. args.name .. ' is not declared by an app: remove it instead')
  end
  apply(args.name, known, fields_of(known, 'default:'), {})
  write_fields(args.name, 'default:', {})
  has_changed(args.name)
  return 1
end)

register('refill', {}, function(args)
  local schedule, new = require_schedule(args.name), check_times(args.times)
  local times = parse_times(schedule.times)
  local last = times[#times] or tonumber(schedule.last) or 0
  if schedule.every or last ~= (args.expected or 0) then return 0 end
  -- Nothing was missed before the schedule was created or resumed. With `missed` one, the last firing made up for all
  -- others.
  local from = math.max(tonumber(schedule.since), schedule.missed == 'one' and tonumber(schedule.at) or 0)
  for _, time in ipairs(new) do
    if time > last and time > from and #times < MAX_TIMES then times[#times + 1] = time end
  end
  redis.call('HSET', key.schedule(args.name), 'times', format_times(times))
  redis.call('SREM', key.refill(), args.name)
  set_next(args.name, schedule, times[1])
  return 1
end)

register('unschedule', { 'allow-oom' }, function(args)
  schedule_name(args.name)
  redis.call('ZREM', key.timers, '&' .. args.name)
  redis.call('SREM', key.refill(), args.name)
  redis.call('ZREM', key.schedules(), args.name)
  local gone = redis.call('DEL', key.schedule(args.name))
  if gone == 1 then emit_about('configured', args.name, { 'schedule', 'removed' }) end
  publish_events()
  return gone
end)

local function set_paused(args, paused)
  local schedule = require_schedule(args.name)
  if (schedule.paused == '1') == paused then return 0 end
  redis.call('HSET', key.schedule(args.name), 'paused', paused and '1' or '0', 'since', now)
  schedule.paused = paused and '1' or '0'
  if not paused and schedule.every then
    -- Times that passed while it was paused were not missed.
    schedule.next = string.format('%.0f', first_time({ every = tonumber(schedule.every), offset = tonumber(schedule.offset) }))
    redis.call('HSET', key.schedule(args.name), 'next', schedule.next)
  elseif not paused then
    local times, first = parse_times(schedule.times), 1
    while times[first] and times[first] <= now do first = first + 1 end
    schedule.times = format_times(times, first)
    redis.call('HSET', key.schedule(args.name), 'times', schedule.times)
    request_times(args.name, schedule, #times - first + 1)
  end
  set_next(args.name, schedule, next_known(schedule))
  emit_about(paused and 'paused' or 'resumed', args.name, 'schedule')
  publish_events()
  return 1
end

register('pause_schedule', { 'allow-oom' }, function(args) return set_paused(args, true) end)

register('resume_schedule', { 'allow-oom' }, function(args) return set_paused(args, false) end)

register('trigger', {}, function(args)
  local schedule = require_schedule(args.name)
  local id = args.name .. '@' .. string.format('%.0f', now) .. '-now'
  enqueue_occurrence(schedule, id)
  redis.call('HSET', key.schedule(args.name), 'job', id)
  emit_about('fired', args.name)
  publish_events()
  return id
end)

local function names_after(last)
  local from = last and '(' .. schedule_name(last) or '-'
  return redis.call('ZRANGEBYLEX', key.schedules(), from, '+', 'LIMIT', 0, MAX_BATCH)
end

register('schedules', { 'no-writes' }, function(args)
  local reply, bytes = {}, 0
  for _, name in ipairs(args.names and check_list(args.names, 'names') or names_after(args.after)) do
    local fields = redis.call('HGETALL', key.schedule(schedule_name(name)))
    if #fields > 0 then
      for _, part in ipairs({ 'name', name, 'now', string.format('%.0f', now) }) do fields[#fields + 1] = part end
      for _, part in ipairs(fields) do bytes = bytes + #part end
      reply[#reply + 1] = fields
    end
    if bytes > MAX_REPLY then break end
  end
  return reply
end)

core.check_template, core.fire, core.repair_schedules = check_template, fire, repair_schedules
core.BATCH_OPTIONS, core.encode_sorted, core.next_firing = BATCH_OPTIONS, encode_sorted, next_firing
