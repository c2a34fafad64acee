-- emit: the events of a call. They are collected, and `publish_events` writes one stream entry per type at the end.
--
-- An entry always has five fields, because the server stores the names of fields that do not change only once per node of
-- the stream:
--
--   type     one of events/types.py
--   jobs     ids of jobs, or names of what the event is about, separated by spaces
--   who      the worker, executor or client that caused it
--   queues   the queues of the jobs, in their order: `name count name count ... name`, where the last name covers the rest,
--            and `*` stands for no queue; empty if there is none at all
--   more     empty; or a line of details and a line of marks, each empty or a JSON list of texts: those of each job in turn,
--            or of one job if they are the same for all. Marks are as the record has them (marks.lua)

local INDEXED, decimal, has = core.INDEXED, core.decimal, core.has

local function begin_event(kind, queue)
  local event = { count = 0, queue = queue, from = 1, size = event_types[kind] or error('unknown event ' .. kind, 0) }
  pending_events[kind], pending_events[#pending_events + 1] = event, kind
  return event
end

-- The jobs from here on are in another queue.
local function change_queue(event, queue, count)
  local runs = event.runs or {}
  runs[#runs + 1], runs[#runs + 2] = event.queue, decimal[count - event.from]
  event.runs, event.queue, event.from = runs, queue, count
end

local function add_details(event, count, detail)
  event.details = event.details or {}
  local before = (count - 1) * event.size
  if type(detail) ~= 'table' then detail = { detail } end
  for place = 1, event.size do event.details[before + place] = detail[place] or '' end
end

local function add(kind, name, queue, detail)
  local event = pending_events[kind] or begin_event(kind, queue)
  local count = event.count + 1
  event.count, event[count] = count, name
  if event.queue ~= queue then change_queue(event, queue, count) end
  if detail then add_details(event, count, detail) end
  return event, count
end

-- Announce what happened to a job, of which only `id`, `queue` and `flags` are used, and its marks if it has some: call
-- this while it has a record. `detail` is a text, or a list of texts in the order of events/types.py.
local function emit(kind, job, detail)
  local event, count = add(kind, job.id, job.queue, detail)
  if job.flags >= INDEXED and has(job.flags, INDEXED) then
    event.marks = event.marks or {}
    event.marks[count] = core.marks.text(job)
  end
end

-- Announce something that is not a job's: of a queue, a limit, a schedule or a worker. `queue`: the queue, if it is one.
local function emit_about(kind, name, detail, queue) add(kind, name, queue or '*', detail) end

local function encode_list(list, size)
  local is_empty = true
  for place = 1, size do
    list[place] = list[place] or ''
    is_empty = is_empty and list[place] == ''
  end
  return is_empty and '' or cjson.encode(list)
end

-- Encode the texts of all jobs, `size` of each; or those of the first job if all jobs have the same.
local function encode_texts(list, count, size)
  if not list then return '' end
  for place = size + 1, count * size do
    if list[place] ~= list[place - size] then return encode_list(list, count * size) end
  end
  return encode_list({ unpack(list, 1, size) }, size)
end

local function encode_more(event)
  local details, marks = encode_texts(event.details, event.count, event.size), encode_texts(event.marks, event.count, 1)
  if marks ~= '' then return details .. '\n' .. marks end
  return details
end

local function encode_queues(event)
  local runs, last = event.runs, event.queue
  if not runs then return last == '*' and '' or last end
  runs[#runs + 1] = last
  return table.concat(runs, ' ')
end

-- The id of an entry tells when it was written: by the clock of the call, if it gives one and no entry is later.
local function append(...)
  if is_now_given then
    local id = redis.pcall('XADD', key.events, 'MAXLEN', '~', core.setting('events'), string.format('%.0f-*', now), ...)
    if type(id) == 'string' then return end
  end
  redis.call('XADD', key.events, 'MAXLEN', '~', core.setting('events'), '*', ...)
end

-- Publish one stream entry per event type. `who`: the executor or worker, if it is not the caller.
local function publish_events(who)
  for place = 1, #pending_events do
    local kind = pending_events[place]
    local event = pending_events[kind]
    append('type', kind, 'jobs', table.concat(event, ' '), 'who', who or caller or '', 'queues', encode_queues(event),
      'more', (event.details or event.marks) and encode_more(event) or '')
    pending_events[place], pending_events[kind] = nil, nil
  end
end

local MAX_NODES, MAX_TRIMS = 10000, 5 -- nodes of the stream whose size is looked up; the server deletes about 10,000 events each

-- Once a minute, delete the older half of the events if they take too much memory. Readers get a gap. Their size is not
-- counted if the user may not call MEMORY.
local function bound_events(last)
  if math.floor(now / constants.EVENT_CHECK) == math.floor(last / constants.EVENT_CHECK) then return end
  local size = redis.pcall('MEMORY', 'USAGE', key.events, 'SAMPLES', MAX_NODES)
  if type(size) ~= 'number' or size <= constants.MAX_EVENT_BYTES then return end
  local half = math.floor(redis.call('XLEN', key.events) / 2)
  for _ = 1, MAX_TRIMS do
    if redis.call('XTRIM', key.events, 'MAXLEN', '~', half) == 0 then return end
  end
end

core.emit, core.emit_about, core.publish_events, core.bound_events = emit, emit_about, publish_events, bound_events
