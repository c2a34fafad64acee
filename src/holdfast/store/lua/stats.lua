-- stats: statistics of a queue by day. stats_tasks: the tasks that it has statistics of. stats_series: numbers per minute or hour.
-- See statistics.lua for what is counted. All three also read the lines that are not folded yet.
--
--   args.queue    the queue; or
--   args.queues   up to 20 queues (stats, stats_series): the reply is then a list of what it would be for each of them
--   args.since    the first time in milliseconds; the day, hour or minute that contains it counts as a whole
--   args.until    the end, exclusive
--   args.ago      how long before now to begin, instead of `since`. Default of all three: today, the last 3 hours by minute, or the
--                 last day by hour
--   args.task     only this task (stats, stats_series; default: all tasks together)
--   args.unit     'minute' or 'hour' (stats_series)
--
-- Errors: INVALID.
--
-- stats returns the start of its first day and the end of its last; the number of jobs that failed in this time and are still failed
-- (-1 if a task was given); attempts that ended, failures, retries; and for waits, then for runs: count, sum in milliseconds, sum of
-- squared deviations from the mean as text, and a list of buckets: lower bound, upper bound (-1: none), count. Histograms have an age
-- of their own, so buckets may contain fewer times than were counted.
--
-- stats_tasks returns the time until which to continue (0: complete), and names of tasks.
--
-- stats_series returns the length of its unit, its first and its last unit as numbers since 1970, from where to continue in milliseconds
-- (0: complete); and for each unit that is not empty: its number, arrivals (-1 if a task was given), attempts that ended, failures,
-- retries, count and sum of waits, count and sum of runs.

local DAY, SLOT, check_optional, check_queue = core.DAY, core.SLOT, core.check_optional, core.check_queue
local expiry, folding = core.expiry, core.folding
local refuse, register, setting, statistics = core.refuse, core.register, core.setting, core.statistics
local buckets, read_lines, unfolded = statistics.buckets, statistics.read_lines, statistics.unfolded
local HOUR, MINUTE, TOTAL = folding.HOUR, folding.MINUTE, folding.TOTAL
local MAX_TIME = 2 ^ 45
local MAX_UNITS = constants.MAX_BATCH -- of a series, that one call reads
local MAX_UNITS_OF_QUEUES = 4000 -- of all series of a call
local MAX_QUEUES = 20
local MAX_TASK_NAMES = 5000 -- that one call reads

-- What `read` returns for a queue, or a list of that for several.
local function of_queues(args, read)
  if not args.queues then return read(check_queue(args.queue), 1) end
  local queues, reply = core.check_list(args.queues, 'queues', 1), {}
  if #queues > MAX_QUEUES then refuse('INVALID', string.format('%d queues in one call (limit %d)', #queues, MAX_QUEUES)) end
  for place, queue in ipairs(queues) do reply[place] = read(check_queue(queue), #queues) end
  return reply
end

local function check_task(task)
  if task == nil then return nil end
  if type(task) ~= 'string' or #task < 1 or #task > constants.MAX_NAME then refuse('INVALID', 'a task must be a name') end
  return task
end

-- Returns the first and the last unit of time, not older than `age`.
local function check_period(args, unit, default, age)
  check_optional(args.since, '`since`', 0, MAX_TIME)
  check_optional(args['until'], '`until`', 0, MAX_TIME)
  check_optional(args.ago, '`ago`', 0, constants.MAX_DURATION)
  local last = math.min(now, (args['until'] or MAX_TIME) - 1)
  local since = args.since or now - (args.ago or default)
  local first = math.max(math.floor(since / unit), math.floor((now - age) / unit))
  return first, math.max(first - 1, math.floor(last / unit))
end

-- Whether a record whose period has ended is still kept.
local function is_kept(ends, age) return ends + age > now end

-- Read the histograms of a day.
local function add_histograms(queue, day, task, waits, runs)
  if not is_kept((day + 1) * DAY, setting('histogram_age', queue)) then return end
  local found = folding.read_fields(key.stats_histogram(queue, day), { 'w' .. task, 'r' .. task })
  folding.histogram_field.add_to(waits, found[1])
  folding.histogram_field.add_to(runs, found[2])
end

local function add_counts(into, counts)
  for place = 1, counts.size, 2 do into[counts[place]] = (into[counts[place]] or 0) + counts[place + 1] end
end

-- Add what is not folded yet.
local function add_unfolded_days(queue, first, last, task, total, waits, runs)
  local age = setting('histogram_age', queue)
  read_lines(unfolded(queue), nil, function(slot, name, summary)
    local day = math.floor(slot / statistics.SLOTS_PER_DAY)
    if day < first or day > last or (task ~= TOTAL and name ~= task) then return end
    folding.merge_summary(total, summary)
    if not is_kept((day + 1) * DAY, age) then return end
    add_counts(waits, summary.waits)
    add_counts(runs, summary.runs)
  end)
end

local function count_failed(queue, first, last)
  local index, from, to, total = key.index[queue].failed, first * DAY, (last + 1) * DAY - 1, 0
  for _, shift in ipairs({ 0, expiry.SET_ASIDE }) do
    total = total + redis.call('ZCOUNT', index, string.format('%.0f', from - shift), string.format('%.0f', to - shift))
  end
  return total
end

local function list_buckets(counts)
  local numbers, list = {}, {}
  for bucket in pairs(counts) do numbers[#numbers + 1] = bucket end
  table.sort(numbers)
  for _, bucket in ipairs(numbers) do
    list[#list + 1], list[#list + 2] = buckets.lower[bucket], buckets.lower[bucket + 1] or -1
    list[#list + 1] = counts[bucket]
  end
  return list
end

local function stats_of(queue, args)
  local task = check_task(args.task) or TOTAL
  local age = setting('stats_age', queue)
  local first, last = check_period(args, DAY, 0, age)
  local total, waits, runs = folding.new_summary(), {}, {}
  for day = first, last do
    local found = folding.read_fields(key.stats_day(queue, day), { task })
    folding.merge_summary(total, folding.day_field.read(found[1]))
    add_histograms(queue, day, task, waits, runs)
  end
  add_unfolded_days(queue, first, last, task, total, waits, runs)
  return { first * DAY, (last + 1) * DAY, task == TOTAL and count_failed(queue, first, last) or -1, total[7], total[8], total[9],
    total[1], total[2], string.format('%.17g', total[3]), list_buckets(waits),
    total[4], total[5], string.format('%.17g', total[6]), list_buckets(runs) }
end

register('stats', { 'no-writes' }, function(args)
  return of_queues(args, function(queue) return stats_of(queue, args) end)
end)

register('stats_tasks', { 'no-writes' }, function(args)
  local queue, names, seen, looked = check_queue(args.queue), {}, { [TOTAL] = true }, 0
  local first, last = check_period(args, DAY, 0, setting('stats_age', queue))
  local function add(name)
    if not seen[name] then seen[name], names[#names + 1] = true, name end
  end
  read_lines(unfolded(queue), nil, function(slot, task)
    local day = math.floor(slot / statistics.SLOTS_PER_DAY)
    if day >= first and day <= last then add(task) end
  end)
  while last >= first and looked < MAX_TASK_NAMES do
    local found = redis.pcall('HKEYS', key.stats_day(queue, last))
    for _, name in ipairs(found) do add(name) end
    last, looked = last - 1, looked + #found + 1
  end
  return { last >= first and (last + 1) * DAY or 0, names }
end)

-- The length of a unit, how long such records are kept, and the default of `ago`.
local function unit_of(args, queue)
  if args.unit == 'hour' then return HOUR, setting('stats_age', queue), DAY end
  if args.unit == 'minute' then return MINUTE, folding.MINUTES_AGE, folding.MINUTES_AGE end
  refuse('INVALID', "the unit must be 'minute' or 'hour'")
end

-- Read the units of one record: number -> summary, number -> arrivals.
local function read_units(where, first, last, per_record, task, rows, arrivals)
  local names, count = {}, last - first + 1
  for place = 1, count do names[place] = string.format('%02d', (first + place - 1) % per_record) .. task end
  for place = 1, count do names[count + place] = string.format('i%02d', (first + place - 1) % per_record) end
  local found = folding.read_fields(where, names)
  for place = 1, count do
    if found[place] then rows[first + place - 1] = folding.cell_field.read(found[place]) end
    arrivals[first + place - 1] = tonumber(found[count + place] or nil)
  end
end

local function read_records(queue, unit, first, last, task)
  local rows, arrivals, number = {}, {}, first
  local per_record = unit == HOUR and 24 or 60
  local name = unit == HOUR and key.stats_hours or key.stats_minutes
  while number <= last do
    local record = math.floor(number / per_record)
    local stop = math.min(last, (record + 1) * per_record - 1)
    read_units(name(queue, record), number, stop, per_record, task, rows, arrivals)
    number = stop + 1
  end
  return rows, arrivals
end

-- Add what is not folded yet: lines, and arrivals of the last slots.
local function add_unfolded_units(queue, unit, first, last, task, rows, arrivals)
  read_lines(unfolded(queue), nil, function(slot, name, summary)
    local number = math.floor(slot * SLOT / unit)
    if number < first or number > last or (task ~= TOTAL and name ~= task) then return end
    rows[number] = rows[number] or folding.new_summary()
    folding.merge_summary(rows[number], summary)
  end)
  local list = redis.pcall('HGETALL', key.load(queue))
  for place = 1, #list, 2 do
    local slot = tonumber(string.match(list[place], '^i(%d+)$'))
    local number = slot and math.floor(slot * SLOT / unit)
    if number and number >= first and number <= last then
      arrivals[number] = (arrivals[number] or 0) + (tonumber(list[place + 1]) or 0)
    end
  end
end

-- `count`: number of queues of the call.
local function series_of(queue, args, count)
  local task = check_task(args.task) or TOTAL
  local unit, age, default = unit_of(args, queue)
  local first, last = check_period(args, unit, default, age)
  local stop = math.min(last, first + math.min(MAX_UNITS, math.floor(MAX_UNITS_OF_QUEUES / count)) - 1)
  local rows, arrivals = read_records(queue, unit, first, stop, task)
  add_unfolded_units(queue, unit, first, stop, task, rows, arrivals)
  local reply = { unit, first, stop, stop < last and (stop + 1) * unit or 0 }
  for number = first, stop do
    local row, arrived = rows[number] or folding.new_summary(), task == TOTAL and (arrivals[number] or 0) or -1
    if rows[number] or arrived > 0 then
      reply[#reply + 1] = { number, arrived, row[7], row[8], row[9], row[1], row[2], row[4], row[5] }
    end
  end
  return reply
end

register('stats_series', { 'no-writes' }, function(args)
  return of_queues(args, function(queue, count) return series_of(queue, args, count) end)
end)
