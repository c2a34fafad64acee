-- folding: statistics per day, hour and minute.
--
-- Four kinds of hashes, each of a queue. They expire by themselves. The field of a task is its name, for the day, or two digits
-- (the hour of the day, the minute of the hour) and its name; without a name it is the total of all tasks.
--
--   sd:<day>:<queue>    summaries of a day (UTC): of waits and of runs I5 count, d sum, d sum of squared deviations; I5 attempts
--                       that ended, I4 failures, I4 retries. Kept for `stats_age`
--   sg:<day>:<queue>    histograms of a day, after the letter w (waits) or r (runs): of each bucket B number, I4 count. Kept for
--                       `histogram_age`
--   sh:<day>:<queue>    the hours of a day: I4 count and I7 sum of waits, the same of runs, I4 attempts that ended, I4 failures,
--                       I4 retries, without trailing zeros; `i` and two digits: arrivals. Kept for `stats_age`
--   sm:<hour>:<queue>   the minutes of an hour, likewise. Kept for 3 hours
--
-- A damaged field starts over.

local DAY, SLOT, add_ended, setting = core.DAY, core.SLOT, core.add_ended, core.setting
local statistics, trim = core.statistics, core.trim
local buckets, read_lines = statistics.buckets, statistics.read_lines
local MAX_TASKS, OTHER = statistics.MAX_TASKS, statistics.OTHER

local MINUTE, HOUR = 60000, 3600000
local MINUTES_AGE = 3 * HOUR
local SUMMARY, SUMMARY_SIZE = '>I5ddI5ddI5I4I4', 55
local CELL, CELL_SIZE = '>I4I7I4I7I4I4I4', 34
local ZEROS = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local BUCKET, BUCKET_SIZE = '>BI4', 5
local MAX_DAYS = 366
local TOTAL = '' -- the name of all tasks together

local function new_summary() return { 0, 0, 0, 0, 0, 0, 0, 0, 0 } end

-- Merge the counts, sums and squared deviations of two sets of times (Chan et al.).
local function merge_times(into, from, place)
  local count, more = into[place], from[place]
  if more == 0 then return end
  local deviations = into[place + 2] + from[place + 2]
  if count > 0 then
    local difference = from[place + 1] / more - into[place + 1] / count
    deviations = deviations + difference * difference * count * more / (count + more)
  end
  into[place], into[place + 1], into[place + 2] = count + more, into[place + 1] + from[place + 1], deviations
end

local function merge_summary(into, from)
  merge_times(into, from, 1)
  merge_times(into, from, 4)
  into[7], into[8], into[9] = into[7] + from[7], into[8] + from[8], into[9] + from[9]
  return into
end

local function is_number(value) return value == value and value >= 0 and value < math.huge end

-- How each kind of field is read and written; `read` returns an empty value for a field that is missing or damaged.
local day_field, cell_field, histogram_field = {}, {}, {}

function day_field.read(packed)
  if not packed or #packed ~= SUMMARY_SIZE then return new_summary() end
  local found = { struct.unpack(SUMMARY, packed) }
  for _, place in ipairs({ 2, 3, 5, 6 }) do
    if not is_number(found[place]) then return new_summary() end
  end
  return found
end

function day_field.pack(from) return struct.pack(SUMMARY, unpack(from, 1, 9)) end

day_field.merge = merge_summary

function cell_field.read(packed)
  if not packed or #packed > CELL_SIZE then return new_summary() end
  local waits, waited, runs, ran, ended, failures, retries = struct.unpack(CELL, packed .. ZEROS)
  return { waits, waited, 0, runs, ran, 0, ended, failures, retries }
end

function cell_field.pack(from)
  return trim(struct.pack(CELL, from[1], from[2], from[4], from[5], from[7], from[8], from[9]))
end

cell_field.merge = merge_summary

-- A histogram stays packed while it is merged: it may have many buckets, of which a fold changes a few.
function histogram_field.read(packed) return packed and #packed % BUCKET_SIZE == 0 and packed or '' end

function histogram_field.pack(packed) return packed end

-- Add to one bucket. Buckets are in order.
local function add_to_bucket(packed, bucket, count)
  local low, high = 0, #packed / BUCKET_SIZE -- the bucket is the one after `low`, or missing
  while low < high do
    local middle = math.floor((low + high) / 2)
    if string.byte(packed, middle * BUCKET_SIZE + 1) < bucket then low = middle + 1 else high = middle end
  end
  local before, rest = low * BUCKET_SIZE, low * BUCKET_SIZE + 1
  if string.byte(packed, rest) == bucket then
    local _, known = struct.unpack(BUCKET, packed, rest)
    count, rest = count + known, rest + BUCKET_SIZE
  end
  return string.sub(packed, 1, before) .. struct.pack(BUCKET, bucket, count) .. string.sub(packed, rest)
end

function histogram_field.merge(packed, counts)
  for bucket, count in pairs(counts) do packed = add_to_bucket(packed, bucket, count) end
  return packed
end

local function merge_counts(into, from)
  for bucket, count in pairs(from) do into[bucket] = (into[bucket] or 0) + count end
end

-- Add the buckets of a field to a table: bucket -> count.
function histogram_field.add_to(counts, packed)
  packed = histogram_field.read(packed)
  for at = 1, #packed, BUCKET_SIZE do
    local bucket, count = struct.unpack(BUCKET, packed, at)
    if bucket <= buckets.LAST then counts[bucket] = (counts[bucket] or 0) + count end
  end
end

-- Read fields of a record; a key of another type is treated as missing.
local function read_fields(where, names)
  local found = redis.pcall('HMGET', where, unpack(names))
  return found.err and {} or found
end

-- Merge values into fields of a record that lives until `age` after its period. `values`: name -> value.
local function merge_into(where, kind, values, ends, age)
  local names, fields = {}, {}
  for name in pairs(values) do names[#names + 1] = name end
  if #names == 0 or ends + age <= now then return end
  local found = redis.pcall('HMGET', where, unpack(names))
  if found.err then
    redis.call('DEL', where)
    found = {}
  end
  for place, name in ipairs(names) do
    fields[2 * place - 1], fields[2 * place] = name, kind.pack(kind.merge(kind.read(found[place]), values[name]))
  end
  redis.call('HSET', where, unpack(fields))
  redis.call('PEXPIRE', where, math.min(ends - now, DAY) + age)
end

local function child(parent, name, make)
  local found = parent[name]
  if not found then
    found = make and make() or {}
    parent[name] = found
  end
  return found
end

-- Tasks of a day that have no place any more: name -> true.
local function surplus_tasks(queue, day, tasks)
  local where, names, surplus = key.stats_day(queue, day), {}, {}
  for task in pairs(tasks) do names[#names + 1] = task end
  local found, new = read_fields(where, names), {}
  for place, task in ipairs(names) do
    if not found[place] and task ~= OTHER then new[#new + 1] = task end
  end
  if #new == 0 then return surplus end
  table.sort(new)
  local length = redis.pcall('HLEN', where)
  local room = MAX_TASKS - math.max(0, (type(length) == 'number' and length or 0) - 1) -- one field is the total
  for place = math.max(0, room) + 1, #new do surplus[new[place]] = true end
  return surplus
end

-- Add the buckets of an entry to those of its task.
local function add_counts(by_task, task, counts)
  if counts.size == 0 then return end
  local into = child(by_task, task)
  for place = 1, counts.size, 2 do
    local bucket = counts[place]
    into[bucket] = (into[bucket] or 0) + counts[place + 1]
  end
end

local function new_day() return { waits = {}, runs = {}, minutes = {} } end

-- What the lines contain, by day: `minutes` (number -> task -> summary), `waits` and `runs` (task -> bucket -> count).
local function sort_lines(queue, text)
  local days, ended_in, busy_in, day, tasks = {}, {}, {}, nil, nil
  local function add_line(slot, ended, busy)
    ended_in[slot], busy_in[slot] = (ended_in[slot] or 0) + ended, (busy_in[slot] or 0) + busy
    day = child(days, math.floor(slot / statistics.SLOTS_PER_DAY), new_day)
    tasks = child(day.minutes, math.floor(slot * SLOT / MINUTE))
  end
  local function add_entry(_, task, summary)
    merge_summary(child(tasks, task, new_summary), summary)
    add_counts(day.waits, task, summary.waits)
    add_counts(day.runs, task, summary.runs)
  end
  local is_whole, fault = read_lines(text, add_line, add_entry)
  for slot, ended in pairs(ended_in) do add_ended(queue, slot, ended, busy_in[slot]) end
  if not is_whole then redis.log(redis.LOG_WARNING, 'holdfast: statistics of queue ' .. queue .. ': ' .. tostring(fault)) end
  return days
end

-- Add up by task, and in all. `surplus`: tasks that count as `other`.
local function add_up(into, prefix, tasks, surplus)
  for task, summary in pairs(tasks) do
    merge_summary(child(into, prefix .. (surplus[task] and OTHER or task), new_summary), summary)
    merge_summary(child(into, prefix .. TOTAL, new_summary), summary)
  end
end

local function fold_histograms(queue, day, found, surplus)
  local values = {}
  for letter, by_task in pairs({ w = found.waits, r = found.runs }) do
    for task, counts in pairs(by_task) do
      merge_counts(child(values, letter .. (surplus[task] and OTHER or task)), counts)
      merge_counts(child(values, letter .. TOTAL), counts)
    end
  end
  merge_into(key.stats_histogram(queue, day), histogram_field, values, (day + 1) * DAY, setting('histogram_age', queue))
end

local function fold_day(queue, day, found)
  local tasks, hours, minutes, age = {}, {}, {}, setting('stats_age', queue)
  for _, of_minute in pairs(found.minutes) do
    for task in pairs(of_minute) do tasks[task] = true end
  end
  local surplus, of_day = surplus_tasks(queue, day, tasks), {}
  for minute, of_minute in pairs(found.minutes) do
    add_up(of_day, '', of_minute, surplus)
    add_up(hours, string.format('%02d', math.floor(minute / 60) % 24), of_minute, surplus)
    add_up(child(minutes, math.floor(minute / 60)), string.format('%02d', minute % 60), of_minute, surplus)
  end
  merge_into(key.stats_day(queue, day), day_field, of_day, (day + 1) * DAY, age)
  merge_into(key.stats_hours(queue, day), cell_field, hours, (day + 1) * DAY, age)
  for hour, values in pairs(minutes) do
    merge_into(key.stats_minutes(queue, hour), cell_field, values, (hour + 1) * HOUR, MINUTES_AGE)
  end
  fold_histograms(queue, day, found, surplus)
end

-- Merge the unfolded lines of a queue into its records.
local function fold(queue)
  local text = redis.call('GET', key.unfolded(queue))
  redis.call('DEL', key.unfolded(queue))
  for day, found in pairs(sort_lines(queue, text)) do fold_day(queue, day, found) end
end

-- Add arrivals to the hour and the minute of their slot.
local function keep_arrivals(queue, slot, count)
  local function keep(where, number, ends, age)
    if ends + age <= now then return end
    local total = redis.pcall('HINCRBY', where, string.format('i%02d', number), count)
    if type(total) ~= 'number' then return redis.call('DEL', where) end -- damaged: start over
    redis.call('PEXPIRE', where, math.min(ends - now, DAY) + age)
  end
  local time = slot * SLOT
  local day, hour = math.floor(time / DAY), math.floor(time / HOUR)
  keep(key.stats_hours(queue, day), hour % 24, (day + 1) * DAY, setting('stats_age', queue))
  keep(key.stats_minutes(queue, hour), math.floor(time / MINUTE) % 60, (hour + 1) * HOUR, MINUTES_AGE)
end

-- Delete the statistics of a queue, of as many days as any setting allows.
local function forget_statistics(queue)
  local today, hour, names = math.floor(now / DAY), math.floor(now / HOUR), { key.unfolded(queue) }
  for day = today - MAX_DAYS, today + 1 do
    names[#names + 1], names[#names + 2] = key.stats_day(queue, day), key.stats_histogram(queue, day)
    names[#names + 1] = key.stats_hours(queue, day)
  end
  for number = hour - 4, hour + 1 do names[#names + 1] = key.stats_minutes(queue, number) end
  redis.call('DEL', unpack(names))
end

core.fold, core.keep_arrivals, core.forget_statistics = fold, keep_arrivals, forget_statistics
core.folding = { SUMMARY_SIZE = SUMMARY_SIZE, CELL_SIZE = CELL_SIZE, BUCKET_SIZE = BUCKET_SIZE, TOTAL = TOTAL, MINUTE = MINUTE,
  HOUR = HOUR, MINUTES_AGE = MINUTES_AGE, day_field = day_field, cell_field = cell_field, histogram_field = histogram_field, merge_summary = merge_summary, new_summary = new_summary,
  read_fields = read_fields }
