-- list: the jobs that match a filter, page by page. count: their number.
--
--   list(filter, limit, cursor, newest, fields, whole)
--     filter   see filters.lua
--     limit    up to 1,000 (100)
--     cursor   end of the previous page; see find.lua
--     newest   newest first, across all queues: see list_newest.lua
--     fields   names of what to return of each job, instead of all that `get` with `brief` returns: some of FIELDS
--     whole    all that `get` returns
--
--     Returns the cursor of the next page (empty after the last one), how many jobs were looked at, then the jobs: as `get`
--     describes them, including unreadable ones, or a list with the values of `fields` for each. A call looks at a bounded
--     number of jobs, so a page may have fewer than `limit` jobs, or none, and still be followed by others.
--
--   count(filter, cursor, indexed)
--     Returns the cursor (empty: done), the number of jobs, and how many were looked at. The numbers of all calls of a walk
--     add up. Where an index has the number, no job is looked at. With `indexed`, none is looked at anyway: the number is -1 if
--     no index has it.
--
-- Errors: INVALID.

local attempt_field, describe, filters, find, has = core.attempt_field, core.describe, core.filters, core.find, core.has
local load_scratch_job, refuse, register, CANCELLING = core.load_scratch_job, core.refuse, core.register, core.CANCELLING
local unpack_attempt, worker_of = core.unpack_attempt, core.worker_of
local COST = find.COST
local MAX_INDEXES = 4000 -- that one call counts

-- The worker of the last attempt.
local function last_worker(job)
  local run = job.attempt > 0 and unpack_attempt(redis.call('HGET', key.job(job.id), attempt_field[job.attempt]))
  return run and worker_of(run.executor) or ''
end

-- What `fields` can name: cheap to read, as the status and the head of a record have it, except the worker.
local FIELDS = {
  id = function(job) return job.id end,
  state = function(job) return job.state end,
  queue = function(job) return job.queue end,
  task = function(job) return job.task end,
  priority = function(job) return job.priority end,
  created = function(job) return job.created end,
  since = function(job) return job.since end,
  attempt = function(job) return job.attempt end,
  cancelling = function(job) return has(job.flags, CANCELLING) and 1 or 0 end,
  group = function(_, group) return group or '' end,
  worker = last_worker,
}

local function check_fields(names)
  if type(names) ~= 'table' or #names == 0 then refuse('INVALID', '`fields` must be a list of names') end
  for _, name in ipairs(names) do
    if not FIELDS[name] then refuse('INVALID', 'unknown field ' .. string.sub(tostring(name), 1, 40)) end
  end
  return names
end

-- Add a job to a reply as the values of some fields; those of an unreadable job are empty, except its id.
local function add_row(reply, id, names)
  local job, group = load_scratch_job(id, 'g', 'v')
  local row = {}
  for place, name in ipairs(names) do
    if job then row[place] = FIELDS[name](job, group) else row[place] = name == 'id' and id or '' end
  end
  reply[#reply + 1] = row
  return COST.look
end

-- Returns a function that adds a job to the reply, and returns what that cost.
local function make_visitor(args, reply)
  if args.fields then
    local names = check_fields(args.fields)
    return function(id) return add_row(reply, id, names) end
  end
  return function(id)
    local job, bytes = describe(id, not args.whole, true)
    reply[#reply + 1] = job
    return args.whole and COST.whole_row + COST.byte * bytes or COST.row
  end
end

register('list', { 'no-writes' }, function(args)
  local query, limit, reply = filters.read(args.filter), find.check_limit(args.limit), { '', 0 }
  local walk = args.newest and find.find_newest or find.find
  local cursor, search = walk(query, args.cursor, limit, make_visitor(args, reply))
  reply[1], reply[2] = cursor, search.looked
  return reply
end)

-- Count by the sizes of indexes, from a queue on.
local function count_indexes(query, cursor)
  local total, left, states = 0, MAX_INDEXES, find.states_of(query)
  local from = cursor and find.split_cursor(cursor, 2)[2]
  local queues = find.next_queues(query, from, true)
  while queues[1] do
    for _, queue in ipairs(queues) do
      if left <= 0 then return { 'c,' .. queue, total, 0 } end
      for _, state in ipairs(states) do total = total + find.count_index(query, queue, state) end
      left = left - math.max(1, #states)
    end
    if query.given.queues then break end
    queues = find.next_queues(query, queues[#queues])
  end
  return { '', total, 0 }
end

-- Whether the indexes of states have the number: then only times may be asked for besides, of states that are indexed by them.
local function has_count(query)
  if #query.of_id > 0 then return false end
  for _, row in ipairs(query.of_job) do
    local is_time = row.name == 'since' or row.name == 'until'
    if not find.by_state.covers[row.name] and not (is_time and find.is_timed(query)) then return false end
  end
  return true
end

register('count', { 'no-writes' }, function(args)
  local query = filters.read(args.filter)
  if has_count(query) then return count_indexes(query, args.cursor) end
  local index, size = nil, nil
  if not args.cursor then index, size = find.choose(query) end
  if index and size and find.has_count(query, index) then return { '', size, 0 } end
  if args.indexed then return { '', -1, 0 } end
  local cursor, search = find.find(query, args.cursor, math.huge, function() return 0 end)
  return { cursor, search.found, search.looked }
end)
