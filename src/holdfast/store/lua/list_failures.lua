-- list_failures: failed jobs by what they have in common, and what is known about a fingerprint.
--
-- failures: the groups, fingerprints, tasks or queues that have failed jobs, page by page.
--
--   args.by       group, fingerprint, task or queue
--   args.queue    count only the failed jobs of this queue, not with `by` queue. A page is then what the next jobs of the queue
--                 have in common: add up what several pages say of a name
--   args.limit    up to 500 (100); with `queue` how many jobs to look at, and with `by` queue how many queues
--   args.cursor   end of the previous page: score and name; by queue, its name
--
-- Names whose last failure is newest come first; queues are in order of their names. Errors: INVALID. Returns the cursor of the next
-- page (an empty list after the last one), then for each name a list: name, number of jobs, first and last time a job failed,
-- the id of the last one; and of a fingerprint also type, place, task, revision (0: unknown), number of errors, when it was first
-- and last seen, and the description of an example. If its record has expired, these are empty texts and zeros.
--
-- failure: a fingerprint.
--
--   args.fingerprint
--
-- Errors: INVALID. Returns the same, then the id and attempt of the example, and its traceback; an empty list if there is neither a
-- record nor a failed job.
--
-- failure_trends: how many jobs of some names failed when, of those that are failed now.
--
--   args.by       group, fingerprint or task
--   args.names    up to 100 names
--   args.since    when the first bucket begins, in milliseconds
--   args.step     how long each bucket is
--   args.count    number of buckets, up to 100
--
-- Errors: INVALID. Returns a list of `count` numbers for each name.
--
-- failure_limits: what is close to the maximum number of failed jobs, or over a maximum number of names.
--
--   args.after   the last queue of the previous page
--
-- Errors: none. Returns a queue to continue after, or an empty text; the kinds of names of which there are too many (`g` group, `p`
-- fingerprint, `t` task); and for each queue that has at least four fifths of the failed jobs that it may have a list: name, number,
-- maximum number, and about how many bytes one takes (0: unknown).

local check_integer, check_list, check_queue = core.check_integer, core.check_list, core.check_queue
local expiry, setting = core.expiry, core.setting
local fingerprints, load_scratch_job, rank_of = core.fingerprints, core.load_scratch_job, core.rank_of
local read_page, refuse, register = core.read_page, core.refuse, core.register

local MAX_BATCH = constants.MAX_BATCH

local KIND_OF = { group = 'g', fingerprint = 'p', task = 't' }
local MAX_LOOKED_AT = 500
local MAX_ARGUMENT = 200 -- bytes

-- The time in an index; see expiry.lua for those that are set aside.
local function time_of(score)
  local time = tonumber(score)
  return time < 0 and time + expiry.SET_ASIDE or time
end

-- Number of jobs of an index, when the first and the last failed, and the last one; nil if there are none.
local function summarise(index)
  local newest = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')
  if not newest[1] then return nil end
  local oldest = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return { redis.call('ZCARD', index), time_of(oldest[2]), time_of(newest[2]), newest[1] }
end

local function new_row(name, count, first, last, id) return { name, count, first, last, id } end

-- Add to a row what the record of its fingerprint has.
local function add_record(row, ...)
  local values = fingerprints.load(row[1], 'type', 'place', 'task', 'revision', 'errors', 'first', 'last', 'description', ...)
  for place = 1, 8 + select('#', ...) do
    local value = values[place] or ''
    row[#row + 1] = place >= 4 and place <= 7 and (tonumber(value) or 0) or value
  end
  return row
end

-- Rows of one kind, those with the newest failures first.
local function list_names(kind, limit, cursor)
  local names, rows = key.failed_names(kind), {}
  local behind = cursor and rank_of(names, cursor[1], cursor[2]) or redis.call('ZCARD', names)
  local page = redis.call('ZRANGE', names, math.max(0, behind - limit), behind - 1, 'WITHSCORES')
  for place = #page - 1, 1, -2 do
    local found = behind > 0 and summarise(key.failed_by(kind, page[place]))
    if found then
      local row = new_row(page[place], unpack(found))
      rows[#rows + 1] = kind == 'p' and add_record(row) or row
    end
  end
  return behind > limit and { page[2], page[1] } or {}, rows
end

local function list_queues(limit, cursor)
  local rows, queues = {}, redis.call('ZRANGEBYLEX', key.queues(), cursor and '(' .. cursor[1] or '-', '+', 'LIMIT', 0, limit)
  for _, queue in ipairs(queues) do
    local found = summarise(key.index[queue].failed)
    if found then rows[#rows + 1] = new_row(queue, unpack(found)) end
  end
  return #queues == limit and { queues[limit] } or {}, rows
end

local function name_of(kind, id)
  local job, group, fingerprint = load_scratch_job(id, 'g', 'v')
  if not job then return 'unreadable' end
  return kind == 't' and job.task or (kind == 'g' and group or fingerprint) or 'unreadable'
end

-- What the next failed jobs of a queue have in common.
local function list_of_queue(kind, queue, limit, cursor)
  local page, rows, by_name = read_page(key.index[queue].failed, limit, cursor and cursor[1], cursor and cursor[2]), {}, {}
  for place = 1, #page, 2 do
    local id, time = page[place], time_of(page[place + 1])
    local name = name_of(kind, id)
    local row = by_name[name]
    if not row then
      row = new_row(name, 0, time, time, id)
      by_name[name], rows[#rows + 1] = row, row
    end
    row[2], row[3] = row[2] + 1, math.min(row[3], time)
    if time >= row[4] then row[4], row[5] = time, id end
  end
  if kind == 'p' then for _, row in ipairs(rows) do add_record(row) end end
  return #page == 2 * limit and { page[#page], page[#page - 1] } or {}, rows
end

local function check_cursor(cursor, size)
  if cursor == nil then return nil end
  if type(cursor) ~= 'table' or #cursor ~= size or (size == 2 and not tonumber(cursor[1])) or type(cursor[size]) ~= 'string' then
    refuse('INVALID', 'expected the cursor of an earlier page')
  end
  return cursor
end

register('failures', { 'no-writes' }, function(args)
  local kind = KIND_OF[args.by]
  if not kind and args.by ~= 'queue' then
    refuse('INVALID', 'expected `by` as group, fingerprint, task or queue, not ' .. string.sub(tostring(args.by), 1, 40))
  end
  if args.queue and not kind then refuse('INVALID', '`queue` requires another `by`') end
  local limit = check_integer(args.limit or constants.DEFAULT_PAGE, 'the limit', 1, MAX_LOOKED_AT)
  local cursor, rows = check_cursor(args.cursor, kind and 2 or 1), nil
  if not kind then
    cursor, rows = list_queues(limit, cursor)
  elseif args.queue then
    cursor, rows = list_of_queue(kind, check_queue(args.queue), limit, cursor)
  else
    cursor, rows = list_names(kind, limit, cursor)
  end
  return { cursor, unpack(rows) }
end, true)

register('failure', { 'no-writes' }, function(args)
  local name = args.fingerprint
  if type(name) ~= 'string' or #name < 1 or #name > MAX_ARGUMENT then refuse('INVALID', 'expected a fingerprint') end
  local found = summarise(key.failed_by('p', name))
  local row = add_record(new_row(name, unpack(found or { 0, 0, 0, '' })), 'job', 'attempt', 'traceback')
  if not found and row[10] == 0 then return {} end
  row[#row - 1] = tonumber(row[#row - 1]) or 0
  return row
end, true)

local MAX_TRENDS, MAX_BUCKETS, MAX_TIME = 100, 100, 2 ^ 47

-- Number of jobs that failed in a period; `shift` is that of jobs that are set aside (see expiry.lua).
local function count_between(index, from, to, shift)
  return redis.call('ZCOUNT', index, string.format('%.0f', from - shift), string.format('(%.0f', to - shift))
end

-- Counts for each bucket. Only those between the first and the last failure are looked at.
local function trend_of(index, since, step, count)
  local counts, found = {}, summarise(index)
  for place = 1, count do counts[place] = 0 end
  if not found then return counts end
  local has_aside = redis.call('ZCOUNT', index, '-inf', '(0') > 0
  local first = has_aside and 1 or math.max(1, math.floor((found[2] - since) / step) + 1)
  local last = has_aside and count or math.min(count, math.floor((found[3] - since) / step) + 1)
  for place = first, last do
    local from = since + (place - 1) * step
    counts[place] = count_between(index, from, from + step, 0)
    if has_aside then counts[place] = counts[place] + count_between(index, from, from + step, expiry.SET_ASIDE) end
  end
  return counts
end

register('failure_trends', { 'no-writes' }, function(args)
  local kind, names, reply = KIND_OF[args.by], check_list(args.names, 'names', 1), {}
  if not kind then refuse('INVALID', 'expected `by` as group, fingerprint or task') end
  if #names > MAX_TRENDS then refuse('INVALID', string.format('%d names in one call (limit %d)', #names, MAX_TRENDS)) end
  local since, step = check_integer(args.since, '`since`', 0, MAX_TIME), check_integer(args.step, 'the step', 1, MAX_TIME)
  local count = check_integer(args.count, 'the number of buckets', 1, MAX_BUCKETS)
  for place, name in ipairs(names) do
    if type(name) ~= 'string' or #name > MAX_ARGUMENT then refuse('INVALID', 'expected names as texts') end
    reply[place] = trend_of(key.failed_by(kind, name), since, step, count)
  end
  return reply
end)

local NEAR, SAMPLE, ENTRIES = 0.8, 5, 4 * 80 -- jobs whose size is looked up, and bytes of the entries of a job in four indexes

local function size_of(name)
  local size = redis.pcall('MEMORY', 'USAGE', name)
  return type(size) == 'number' and size or 0
end

-- About how many bytes a failed job of a queue takes.
local function sample_size(index)
  local ids, bytes = redis.call('ZRANGE', index, -SAMPLE, -1), 0
  for _, id in ipairs(ids) do
    for _, name in ipairs({ key.job(id), key.errors(id), key.notes(id), key.blob('p', id), key.log(id) }) do
      bytes = bytes + size_of(name)
    end
  end
  return bytes > 0 and math.floor(bytes / #ids) + ENTRIES or 0
end

register('failure_limits', { 'no-writes' }, function(args)
  local after = type(args.after) == 'string' and '(' .. args.after or '-'
  local queues = redis.call('ZRANGEBYLEX', key.queues(), after, '+', 'LIMIT', 0, MAX_BATCH)
  local reply = { #queues == MAX_BATCH and queues[#queues] or '', markers.other or '' }
  for _, queue in ipairs(queues) do
    local index, most = key.index[queue].failed, setting('keep_failed_count', queue)
    local count = redis.call('ZCARD', index)
    if count > 0 and count >= NEAR * most then reply[#reply + 1] = { queue, count, most, sample_size(index) } end
  end
  return reply
end, true)
