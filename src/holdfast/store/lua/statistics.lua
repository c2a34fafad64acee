-- statistics: how long jobs waited and ran, failures and retries, by queue and task.
--
-- A wait is the time from when a job could be claimed until its claim. A run is an attempt that completed: it succeeded, or
-- advanced to another call; it counts from claim to end. Other attempts only count as ended. A failure is a job that entered the
-- state `failed`; a retry is an attempt that ended with an error, a crash or a lost lease, and whose job runs again by itself.
--
-- A call collects what it does. At its end it appends one line per queue to a string (`sl:<queue>`), which takes one command. A
-- string of MAX_UNFOLDED bytes, or whose first line is a day old, is folded into records; see folding.lua. All numbers are
-- big-endian:
--
--   line    I4 number of its 15 s slot, I3 bytes of its entries, I3 attempts that ended, I6 their total milliseconds, entries
--   entry   task, a zero byte, B which parts follow: w + 3r + 9c
--   w, r    waits and runs: 0 none; 1 one, as I5; 2 several, as I3 count, d sum, d sum of squared deviations from the mean,
--           B number of buckets, and of each bucket B its number and I3 its count
--   c       1: I3 attempts that ended without completing, I3 failures, I3 retries

local DAY, SLOT, on_first_call, setting = core.DAY, core.SLOT, core.on_first_call, core.setting

local MAX_UNFOLDED = 4096 -- bytes
local SLOTS_PER_DAY = DAY / SLOT
local MAX_TASKS, OTHER = 200, 'other' -- of a queue and day; further tasks count together as `other`
local LINE, ONE, SEVERAL, BUCKET, COUNTS = '>I4I3I3I6', '>I5', '>I3ddB', '>BI3', '>I3I3I3'
local MAX_NAME = constants.MAX_NAME
local MAX_TIME, MAX_COUNT = 2 ^ 40 - 1, 2 ^ 24 - 1
local MAX_KNOWN = 2000 -- queues and tasks whose tables are kept for later calls

-- Buckets of a histogram: milliseconds by powers of two, then seconds, minutes, hours and days.
local buckets = { LAST = 254, lower = {} }

function buckets.of(time)
  if time < 1000 then
    local _, exponent = math.frexp(time)
    return exponent
  end
  if time < 60000 then return 10 + math.floor(time / 1000) end
  if time < 3600000 then return 69 + math.floor(time / 60000) end
  if time < DAY then return 128 + math.floor(time / 3600000) end
  return math.min(151 + math.floor(time / DAY), buckets.LAST)
end

on_first_call[#on_first_call + 1] = function()
  local lower = buckets.lower -- bucket -> its first millisecond
  lower[0] = 0
  for exponent = 0, 9 do lower[1 + exponent] = 2 ^ exponent end
  for count = 1, 59 do lower[10 + count], lower[69 + count] = count * 1000, count * 60000 end
  for count = 1, 23 do lower[128 + count] = count * 3600000 end
  for count = 1, buckets.LAST - 151 do lower[151 + count] = count * DAY end
end

-- What this call did: a list of queues, each with attempts that ended, their milliseconds, and a list of entries. An entry has the
-- waits and runs of a task and other counts. Within a call times are mostly equal, so a set of times is the first of them and its
-- count, and if there are others, a table `more`: milliseconds -> count. Queues and entries are reused by later calls.
local collected = {}
local known, known_count = {}, 0 -- queue name -> queue, with task -> entry
local last_queue, last_task, last_entry

local function new_entry(of_queue, task)
  return { queue = of_queue, task = task, waits = { count = 0 }, runs = { count = 0 }, others = 0, failures = 0, retries = 0 }
end

-- Make room for one more, so that neither many queues nor many tasks fill the memory of the server.
local function count_known()
  if known_count >= MAX_KNOWN then known, known_count = {}, 0 end
  known_count = known_count + 1
end

local function find_queue(queue)
  local found = known[queue]
  if not found then
    count_known()
    found = { name = queue, ended = 0, busy = 0, entries = {}, by_task = {} }
    known[queue] = found
  end
  if not found.is_collected then found.is_collected, collected[#collected + 1] = true, found end
  return found
end

local function find_entry(queue, task)
  local of_queue = find_queue(queue)
  local entries, by_task = of_queue.entries, of_queue.by_task
  local entry = by_task[task]
  if not entry or not entry.is_collected and #entries >= MAX_TASKS then
    if #entries >= MAX_TASKS then task = OTHER end
    entry = by_task[task]
    if not entry then
      count_known()
      entry = new_entry(of_queue, task)
      by_task[task] = entry
    end
  end
  if not entry.is_collected then entry.is_collected, entries[#entries + 1] = true, entry end
  return entry
end

local function entry_of(job)
  local queue, task = job.queue, job.task
  if task ~= last_task or queue ~= last_queue then
    last_queue, last_task, last_entry = queue, task, find_entry(queue, task)
  end
  return last_entry
end

local function add_time(times, time)
  if times.first == time then
    times.count = times.count + 1
  elseif times.count == 0 then
    times.first, times.count = time, 1
  else
    local more = times.more
    if not more then
      more = {}
      times.more = more
    end
    more[time] = (more[time] or 0) + 1
  end
end

local statistics = { MAX_TASKS = MAX_TASKS, OTHER = OTHER, SLOTS_PER_DAY = SLOTS_PER_DAY, buckets = buckets }

function statistics.count_wait(job, waited) add_time(entry_of(job).waits, waited) end

local IS_RUN = { S = true, A = true } -- outcomes of attempts that completed

function statistics.count_end(job, outcome, ran)
  local entry = entry_of(job)
  local queue = entry.queue
  queue.ended, queue.busy = queue.ended + 1, queue.busy + ran
  if IS_RUN[outcome] then add_time(entry.runs, ran) else entry.others = entry.others + 1 end
end

function statistics.count_failure(job)
  local entry = entry_of(job)
  entry.failures = entry.failures + 1
end

function statistics.count_retry(job)
  local entry = entry_of(job)
  entry.retries = entry.retries + 1
end

local function pack_several(times)
  local all, count, sum, deviations, counts, numbers = times.more or {}, 0, 0, 0, {}, {}
  all[times.first] = times.count
  for time, number in pairs(all) do
    count, sum = count + number, sum + time * number
    local bucket = buckets.of(time)
    if not counts[bucket] then counts[bucket], numbers[#numbers + 1] = 0, bucket end
    counts[bucket] = counts[bucket] + number
  end
  local mean = sum / count
  for time, number in pairs(all) do deviations = deviations + number * (time - mean) ^ 2 end
  for place, bucket in ipairs(numbers) do numbers[place] = struct.pack(BUCKET, bucket, counts[bucket]) end
  return struct.pack(SEVERAL, count, sum, deviations, #numbers) .. table.concat(numbers)
end

-- Pack a set of times, and empty it. Returns which form they take, and the packed times.
local function pack_times(times)
  if times.count == 0 then return 0, '' end
  local form, packed
  if times.count == 1 and not times.more then
    form, packed = 1, struct.pack(ONE, math.min(times.first, MAX_TIME))
  else
    form, packed = 2, pack_several(times)
  end
  times.first, times.count, times.more = nil, 0, nil
  return form, packed
end

-- Pack an entry, and empty it.
local function pack_entry(entry)
  local waits, packed_waits = pack_times(entry.waits)
  local runs, packed_runs = pack_times(entry.runs)
  local others, failures, retries = entry.others, entry.failures, entry.retries
  entry.is_collected = false
  if others + failures + retries == 0 then
    return struct.pack('>sB', entry.task, waits + 3 * runs) .. packed_waits .. packed_runs
  end
  entry.others, entry.failures, entry.retries = 0, 0, 0
  return struct.pack('>sB', entry.task, waits + 3 * runs + 9) .. packed_waits .. packed_runs
    .. struct.pack(COUNTS, math.min(others, MAX_COUNT), math.min(failures, MAX_COUNT), math.min(retries, MAX_COUNT))
end

-- Pack what a queue collected, and empty it.
local function pack_line(slot, of_queue)
  local parts, list, ended, busy = of_queue.entries, '', of_queue.ended, of_queue.busy
  for place = 1, #parts do parts[place] = pack_entry(parts[place]) end
  list = #parts == 1 and parts[1] or table.concat(parts)
  of_queue.is_collected, of_queue.ended, of_queue.busy = false, 0, 0
  for place = #parts, 1, -1 do parts[place] = nil end
  return struct.pack(LINE, slot, #list, math.min(ended, MAX_COUNT), busy) .. list
end

-- Key of unfolded lines -> slot of the first. It is lost when the server restarts, and then read again.
local begun, begun_count = {}, 0

local function set_begun(where, slot)
  if not begun[where] then begun_count = begun_count + 1 end
  if begun_count > 10000 then begun, begun_count = {}, 1 end
  begun[where] = slot
end

local function begun_at(where)
  if not begun[where] then
    local first = redis.call('GETRANGE', where, 0, 3)
    set_begun(where, #first == 4 and struct.unpack('>I4', first) or 0)
  end
  return begun[where]
end

local function append(queue, line, slot)
  local where = key.unfolded(queue)
  local length = redis.pcall('APPEND', where, line)
  if type(length) ~= 'number' then return redis.call('DEL', where) end -- damaged: start over
  if length >= MAX_UNFOLDED then return core.fold(queue) end
  if length == #line then
    set_begun(where, slot)
    redis.call('PEXPIRE', where, setting('stats_age', queue) + 2 * DAY)
  elseif slot - begun_at(where) >= SLOTS_PER_DAY then
    core.fold(queue)
  end
end

-- Append what the call collected; the end of every call, even of one that failed.
local function store_statistics()
  if not collected[1] then return end
  local batch, slot = collected, math.floor(now / SLOT)
  collected, last_queue = {}, nil
  local lines = {} -- all first: that empties what was collected, even if a key cannot be written
  for place = 1, #batch do lines[place] = pack_line(slot, batch[place]) end
  for place = 1, #batch do append(batch[place].name, lines[place], slot) end
end

-- The lines of a queue that are not folded yet.
function statistics.unfolded(queue)
  local text = redis.pcall('GET', key.unfolded(queue))
  return type(text) == 'string' and text or ''
end

-- The parts of an entry that was read: waits and runs (count, sum, deviations), ended, failures, retries.
local summary = { 0, 0, 0, 0, 0, 0, 0, 0, 0, waits = {}, runs = {} } -- reused

-- Read waits or runs into the summary. Returns where the next part begins.
local function read_times(text, at, form, place, counts)
  summary[place], summary[place + 1], summary[place + 2], counts.size = 0, 0, 0, 0
  if form == 1 then
    local time
    time, at = struct.unpack(ONE, text, at)
    summary[place], summary[place + 1] = 1, time
    counts[1], counts[2], counts.size = buckets.of(time), 1, 2
  elseif form == 2 then
    summary[place], summary[place + 1], summary[place + 2], counts.size, at = struct.unpack(SEVERAL, text, at)
    counts.size = 2 * counts.size
    for number = 1, counts.size, 2 do counts[number], counts[number + 1], at = struct.unpack(BUCKET, text, at) end
  end
  return at
end

local function read_entry(text, at)
  local task, form
  task, form, at = struct.unpack('>sB', text, at)
  if #task < 1 or #task > MAX_NAME or form > 17 then error('damaged statistics', 0) end
  at = read_times(text, at, form % 3, 1, summary.waits)
  at = read_times(text, at, math.floor(form / 3) % 3, 4, summary.runs)
  summary[7], summary[8], summary[9] = 0, 0, 0
  if form >= 9 then summary[7], summary[8], summary[9], at = struct.unpack(COUNTS, text, at) end
  summary[7] = summary[7] + summary[4]
  return task, at
end

-- Read the unfolded lines of a queue, up to the first damaged one: `line(slot, ended, busy)` for each line, then
-- `entry(slot, task, summary)` for each of its entries; either may be nil. The summary is reused. Returns whether all could
-- be read, or else why not.
function statistics.read_lines(text, line, entry)
  local at = 1
  return pcall(function()
    while at <= #text do
      local slot, size, ended, busy
      slot, size, ended, busy, at = struct.unpack(LINE, text, at)
      local stop = at + size
      if stop > #text + 1 then error('damaged statistics', 0) end
      if line then line(slot, ended, busy) end
      while entry and at < stop do
        local task
        task, at = read_entry(text, at)
        entry(slot, task, summary)
      end
      at = stop
    end
  end)
end

core.statistics, core.store_statistics = statistics, store_statistics
