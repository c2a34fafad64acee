-- filters: which jobs a call is about. `list`, `count` and operations take the same filters; a job must match all that are
-- given.
--
--   filter.states, queues   names (default: all)
--   filter.task             its task
--   filter.group            the group of its failure
--   filter.fingerprint      the fingerprint of its failure
--   filter.tag              it has this tag
--   filter.scope            it is in this scope, or below it
--   filter.batch            it is a job of this batch
--   filter.waits_for        it is blocked, and waits for this job to end
--   filter.worker           it is running on this worker
--   filter.stalled          true: its lease has ended, and no call has requeued it yet; false: it is not so
--   filter.since, until     it entered its state at this time or later; at this time or earlier. Milliseconds; a negative
--                           number counts from now
--   filter.id_prefix        how its id begins
--
-- Each filter is one row: how to check its value, and how to test a job; the cheapest tests come first. Rows whose `of_id` is
-- set test the id alone. find.lua has the indexes.

local INDEXED, LETTER_OF, STATES = core.INDEXED, core.LETTER_OF, core.STATES
local attempt_field, check_integer, check_list = core.attempt_field, core.check_integer, core.check_list
local check_id, check_queue, check_worker = core.check_id, core.check_queue, core.check_worker
local failures, has, is_stalled, marks = core.failures, core.has, core.is_stalled, core.marks
local load_scratch_job, refuse = core.load_scratch_job, core.refuse
local unpack_attempt, worker_of = core.unpack_attempt, core.worker_of
local MAX_ID, MAX_NAME = constants.MAX_ID, constants.MAX_NAME

local function check_states(states)
  for _, state in ipairs(states) do
    if not LETTER_OF[state] then
      refuse('INVALID', string.format('unknown state %q; expected one of %s', string.sub(tostring(state), 1, 40), table.concat(STATES, ', ')))
    end
  end
  return states
end

-- A list of distinct names, and name -> true.
local function as_set(names)
  local list, set = {}, {}
  for _, name in ipairs(names) do
    if not set[name] then set[name], list[#list + 1] = true, name end
  end
  return { list = list, set = set }
end

local function check_text(value, what, max)
  if type(value) ~= 'string' or #value > max then
    refuse('INVALID', string.format('`%s` must be text of up to %d bytes', what, max))
  end
  return value
end

local function check_time(value, what)
  check_integer(value, '`' .. what .. '`', -2 ^ 52, 2 ^ 52)
  return value < 0 and math.max(0, now + value) or value
end

local function has_worker(job, worker)
  if job.state ~= 'running' then return false end
  local run = unpack_attempt(redis.call('HGET', key.job(job.id), attempt_field[job.attempt]))
  return run ~= nil and worker_of(run.executor) == worker
end

-- The test of a filter that the marks of a job answer.
local function by_marks(matches)
  return function(job, value) return job.flags >= INDEXED and has(job.flags, INDEXED) and matches(marks.read(job), value) end
end

-- The index decides: a batch that was deleted has no jobs, although their records still name it.
local function is_member(job, batch)
  return job.flags >= INDEXED and has(job.flags, INDEXED) and redis.call('ZSCORE', key.batch(batch), job.id) ~= false
end

-- A job waits for another as long as it is among its dependents.
local function waits_for(job, id) return job.state == 'blocked' and redis.call('ZSCORE', key.dependents(id), job.id) ~= false end

local function check_stalled(value)
  if type(value) ~= 'boolean' then refuse('INVALID', '`stalled` must be true or false') end
  return value
end

local FILTERS = {
  {
    name = 'id_prefix', of_id = true,
    check = function(value) return check_text(value, 'id_prefix', MAX_ID) end,
    test = function(id, prefix) return string.sub(id, 1, #prefix) == prefix end,
  },
  {
    name = 'states',
    check = function(value) return as_set(check_states(check_list(value, '`states`', 0))) end,
    test = function(job, states) return states.set[job.state] end,
  },
  {
    name = 'queues',
    check = function(value)
      for _, queue in ipairs(check_list(value, '`queues`', 0)) do check_queue(queue) end
      return as_set(value)
    end,
    test = function(job, queues) return queues.set[job.queue] end,
  },
  {
    name = 'task',
    check = function(value) return check_text(value, 'task', MAX_NAME) end,
    test = function(job, task) return job.task == task end,
  },
  {
    name = 'since',
    check = function(value) return check_time(value, 'since') end,
    test = function(job, since) return job.since >= since end,
  },
  {
    name = 'until',
    check = function(value) return check_time(value, 'until') end,
    test = function(job, time) return job.since <= time end,
  },
  {
    name = 'group',
    check = function(value) return failures.clean_group(check_text(value, 'group', 4096)) end, -- as records store it
    test = function(_, group, own) return own == group end,
  },
  {
    name = 'fingerprint',
    check = function(value) return check_text(value, 'fingerprint', MAX_NAME) end,
    test = function(_, fingerprint, _, own) return own == fingerprint end,
  },
  { name = 'tag', check = function(value) return marks.check_tags({ value })[1] end, test = by_marks(marks.has_tag) },
  {
    name = 'scope', check = marks.check_scope,
    test = by_marks(function(names, scope) return marks.is_within(names.scope, scope) end),
  },
  { name = 'batch', check = marks.check_batch, test = is_member },
  { name = 'waits_for', check = check_id, test = waits_for },
  { name = 'stalled', check = check_stalled, test = function(job, wanted) return is_stalled(job) == wanted end },
  { name = 'worker', check = check_worker, test = has_worker },
}
local BY_INDEX_ALONE = { states = true, queues = true, id_prefix = true } -- filters that an unreadable job can match

-- Check a filter. Returns a query: `given`, name -> value; `by_index`, whether an unreadable job can match.
local function read_filter(filter)
  if type(filter or {}) ~= 'table' then refuse('INVALID', '`filter` must be an object') end
  local query, count = { given = {}, of_id = {}, of_job = {}, by_index = true }, 0
  for _, row in ipairs(FILTERS) do
    local value = (filter or {})[row.name]
    if value ~= nil then
      count = count + 1
      query.given[row.name] = row.check(value)
      local tests = row.of_id and query.of_id or query.of_job
      tests[#tests + 1] = row
      query.by_index = query.by_index and BY_INDEX_ALONE[row.name]
    end
  end
  for name in pairs(filter or {}) do
    if count == 0 or query.given[name] == nil then
      refuse('INVALID', 'unknown filter ' .. string.sub(tostring(name), 1, 40))
    end
  end
  return query
end

-- Let a query match only jobs that have been in their state since then.
local function end_query_at(query, time)
  if query.given['until'] then
    query.given['until'] = math.min(query.given['until'], time)
    return
  end
  query.given['until'] = time
  for _, row in ipairs(FILTERS) do
    if row.name == 'until' then query.of_job[#query.of_job + 1] = row end
  end
end

local function passes(tests, given, subject, ...)
  for place = 1, #tests do
    local row = tests[place]
    if not row.test(subject, given[row.name], ...) then return false end
  end
  return true
end

local function matches_id(query, id) return passes(query.of_id, query.given, id) end

local function matches_record(query, id)
  local job, group, fingerprint = load_scratch_job(id, 'g', 'v')
  if not job then return query.by_index and group ~= 'NOTFOUND' end
  return passes(query.of_job, query.given, job, group, fingerprint)
end

core.filters = {
  read = read_filter, end_at = end_query_at, matches_id = matches_id, matches_record = matches_record,
  check_states = check_states,
}
