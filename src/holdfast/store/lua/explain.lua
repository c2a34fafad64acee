-- explain: why jobs are not running.
--
--   args.ids     up to 100
--
-- Errors: INVALID.
--
-- Returns for each job nil if it does not exist, or a list of names and values. `reasons` are lists of a code, then names and
-- values, the one that matters most first; see docs/protocol.md. `ready` is 1 if the next claims of the queue would hand the job
-- out; whether a worker makes them is among the reasons.
--
-- The gate is asked as `claim` asks it. A delay, a deadline, a period or a lease that is over counts as over, although the next
-- call that advances time has yet to act on it.

local ALONE, CANCELLING, DEADLINE, FINAL = core.ALONE, core.CANCELLING, core.DEADLINE, core.FINAL
local OUTCOME_OF, attempt_field, check_ids = core.OUTCOME_OF, core.attempt_field, core.check_ids
local current_attempt, decimal, dependencies = core.current_attempt, core.decimal, core.dependencies
local errors, front, gate, has, limits = core.errors, core.front, core.gate, core.has, core.limits
local load_job, option, refuse, register = core.load_job, core.option, core.refuse, core.register
local RETRYING, setting, staff, unpack_attempt, worker_of = core.RETRYING, core.setting, core.staff, core.unpack_attempt, core.worker_of
local HEARTBEAT_TIMEOUT = constants.HEARTBEAT_TIMEOUT

local MAX_IDS = 100
local MAX_LISTED = 10 -- jobs that one reason names
local CANNOT_RUN = { ['unknown-task'] = true, ['no-exec'] = true }
local ITEM = 'raw' -- the task of items, which no worker runs
local PROGRAM = 'holdfast.program'

local function is_item(job) return job.task == ITEM and job.spec.codec == 'raw' end

-- Reasons of the job itself

-- How the last attempt ended: names and values.
local function last_attempt(job)
  local fields = redis.call('HMGET', key.job(job.id), attempt_field[job.attempt], 'o' .. decimal[job.attempt])
  local run = unpack_attempt(fields[1])
  if not run then return {} end
  local _, description = errors.find(job.id, job.attempt)
  local outcome = OUTCOME_OF[run.outcome] or 'damaged'
  return { 'attempt', job.attempt, 'outcome', outcome, 'executor', run.executor, 'reason', fields[2] or '',
    'error', description or '' }, outcome
end

local function code_of_delay(job, outcome)
  if outcome == 'error' then return 'retrying' end
  if outcome == 'unknown' then return 'unknown-to-last' end
  return outcome == 'released' and has(job.flags, ALONE) and 'alone' or 'not-due'
end

local function describe_delay(job, due)
  local reason, ended, outcome = { 'not-due', 'due', due }, {}, nil
  if job.attempt > 0 then ended, outcome = last_attempt(job) end
  reason[1] = code_of_delay(job, outcome)
  for _, value in ipairs(ended) do reason[#reason + 1] = value end
  if outcome == 'error' then -- if a limit stopped the attempt, its own budget may be charged instead
    local retry = has(job.flags, RETRYING) and job.retries_used + 1 or 0
    for _, value in ipairs({ 'retry', retry, 'retries', option(job, 'retries') }) do reason[#reason + 1] = value end
  end
  return reason
end

-- The state of a dependency: as it is; if it cannot be read, why not; or as it ended.
local function state_of(id, letter)
  if letter ~= '-' then return dependencies.STATE_OF[letter] or 'damaged' end
  local done, job, fault = pcall(load_job, id)
  if done and job then return job.state end
  return fault == 'NOTFOUND' and 'deleted' or fault == 'NEWER' and 'newer' or 'damaged'
end

-- The letter of an edge that keeps a job blocked, else nil. Of many edges most are pending or have succeeded: these need not be
-- parsed.
local function unmet_letter(edge, policy)
  if string.sub(edge, -1) == '-' then return '-' end
  if string.find(edge, '^%d+w?S') then return nil end
  local _, letter, own = dependencies.parse_edge(edge, policy)
  return not dependencies.satisfies(letter, own) and letter or nil
end

-- The dependencies that a blocked job still waits for, up to MAX_LISTED: id and state. Those that have ended, but not as the job
-- needs it, are first: they keep it blocked.
local function describe_blocked(job)
  local count, policy = dependencies.parse_field(redis.call('HGET', key.job(job.id), 'b'))
  local pending, rows, marks = {}, {}, redis.call('HGETALL', key.after(job.id))
  for at = 1, #marks, 2 do
    local letter = unmet_letter(marks[at + 1], policy)
    local list = letter == '-' and pending or rows
    if letter and #list < MAX_LISTED then list[#list + 1] = { marks[at], letter } end
  end
  for _, edge in ipairs(pending) do
    if #rows < MAX_LISTED then rows[#rows + 1] = edge end
  end
  for place, edge in ipairs(rows) do rows[place] = { edge[1], state_of(edge[1], edge[2]) } end
  return { 'blocked', 'count', count, 'by', rows }
end

local function describe_running(job)
  local run, ends = current_attempt(job), tonumber(redis.call('ZSCORE', key.timers, job.id) or 0)
  local seen = tonumber(redis.call('ZSCORE', key.workers(), (worker_of(run.executor))) or 0)
  return { ends > now and 'running' or 'lease-ended', 'executor', run.executor, 'claimed', run.claimed, 'lease_ends', ends,
    'heartbeat', seen, 'live', seen >= now - HEARTBEAT_TIMEOUT and 1 or 0, 'cancelling', has(job.flags, CANCELLING) and 1 or 0 }
end

-- Why a job does not wait in its queue; nil if it does, or is about to.
local function own_reason(job)
  if job.state == 'blocked' then return describe_blocked(job) end
  if job.state ~= 'scheduled' then return nil end
  local due = tonumber(redis.call('ZSCORE', key.timers, job.id) or 0)
  return due > now and describe_delay(job, due) or nil
end

-- Reasons of the gate

local function holders_of(limit)
  local from, to = '[' .. limit .. ' ', '(' .. limit .. '!'
  local list = redis.call('ZRANGEBYLEX', key.holders(limits.name_of(limit)), from, to, 'LIMIT', 0, MAX_LISTED)
  for place, holder in ipairs(list) do list[place] = string.sub(holder, #limit + 2) end
  return list
end

local function describe_limit(limit, ahead)
  local slots, per = limits.definition(limit)
  return { 'limit', 'limit', limit, 'slots', slots or 0, 'per', per or 0, 'free', limits.free_slots(limit, MAX_LISTED), 'ahead', ahead,
    'held', limits.count_holders(limit), 'holders', holders_of(limit), 'next', limits.next_start(limit) or 0 }
end

local function describe_concurrency(queue, room, ahead)
  local index = key.index[queue].running
  return { 'concurrency', 'slots', setting('concurrency', queue), 'free', math.max(0, room), 'ahead', ahead,
    'held', redis.call('ZCARD', index), 'holders', redis.call('ZRANGE', index, 0, MAX_LISTED - 1) }
end

-- Why the queue holds a job back. If it has `room`, jobs ahead of this one may fill it.
local function queue_reason(job, ahead)
  local why, room = gate.queue(job.queue)
  if why == 'concurrency' or (not why and room <= ahead) then return describe_concurrency(job.queue, room, ahead) end
  return why and { why } or nil
end

-- Whether the next call that advances time has a throttled job wait: the period of its limit is over, and a slot is left for it.
local function is_released(job, limit, used)
  local time, place = redis.call('ZSCORE', key.timers, '%' .. limit), redis.call('ZRANK', key.parked(limit, job.queue), job.id)
  if not time or tonumber(time) > now or not place or place >= limits.MAX_UNPARKED then return false end
  return limits.free_slots(limit, limits.MAX_UNPARKED) - (used[limit] or 0) > place
end

-- Why a job that its queue lets start does not.
local function job_reason(job, ahead, used)
  local why, limit = front.ask(job, redis.call('HGET', key.job(job.id), 'p'), used)
  if why == 'limit' then return describe_limit(limit, ahead) end
  if why then return { why } end
  if job.state ~= 'throttled' then return nil end
  limit = redis.call('HGET', key.job(job.id), 'z') or '?'
  return not is_released(job, limit, used) and describe_limit(limit, ahead) or nil -- a slot is free, but offered to others first
end

-- Reasons of the workers

local function describe_program(found) return { 'no-exec', 'workers', found.live } end

local function describe_unknown(survey, found)
  return { 'unknown-task', 'workers', found.live, 'names', staff.names(survey, found), 'tasks', staff.tasks(survey, found) }
end

-- Why no worker would run a job, even if its queue and its limits let it start.
local function staff_reason(survey, job)
  if is_item(job) then return nil end
  local found = staff.of_queue(survey, job.queue)
  if found.live == 0 then
    local served = staff.served(survey)
    return served and { 'unserved', 'served', served } or { 'no-worker' }
  end
  if staff.is_draining(survey, found) then return { 'draining', 'workers', found.live } end
  if staff.would_run(survey, found, job.task) then return nil end
  return job.task == PROGRAM and describe_program(found) or describe_unknown(survey, found)
end

local function describe_ready(survey, job, ahead)
  if is_item(job) then return { 'item', 'ahead', ahead } end
  local found = staff.of_queue(survey, job.queue)
  local held = found.idle == 0 and staff.held(survey, found) or 0
  return { held > 0 and 'busy' or 'ready', 'ahead', ahead, 'workers', found.live, 'held', held }
end

-- All reasons

-- The reasons of a job that has not ended and is not running; whether it is ready, and how many jobs start before it.
local function find_reasons(surveys, job)
  local reasons, ahead, used = {}, front.before(surveys.front, job)
  if gate.job(job) == 'deadline' then return { { 'deadline' } }, false, 0 end
  local own = own_reason(job)
  reasons[1] = own
  local closed = queue_reason(job, ahead)
  if not (own and closed and closed[1] == 'concurrency') then reasons[#reasons + 1] = closed end
  if not own then reasons[#reasons + 1] = job_reason(job, ahead, used) end
  local is_ready = not reasons[1]
  reasons[#reasons + 1] = staff_reason(surveys.staff, job)
  if not reasons[1] then reasons[1] = describe_ready(surveys.staff, job, ahead) end
  return reasons, is_ready, ahead
end

local function reasons_of(surveys, job)
  if FINAL[job.state] then return { { 'ended', 'group', redis.call('HGET', key.job(job.id), 'g') or '' } }, false, 0 end
  if job.state == 'running' then
    local why = staff_reason(surveys.staff, job) -- a worker may have claimed it that is about to find that it cannot run it
    return { describe_running(job), why and CANNOT_RUN[why[1]] and why or nil }, false, 0
  end
  return find_reasons(surveys, job)
end

-- Returns nil and a code if the job cannot be read.
local function describe(surveys, id)
  local job, fault = load_job(id)
  if not job then return nil, fault end
  local reasons, is_ready, ahead = reasons_of(surveys, job)
  local deadline = has(job.flags, DEADLINE) and tonumber(redis.call('HGET', key.job(id), 'd') or 0) or 0
  return { 'id', id, 'now', now, 'state', job.state, 'queue', job.queue, 'task', job.task, 'created', job.created, 'since', job.since,
    'attempt', job.attempt, 'deadline', deadline, 'alone', has(job.flags, ALONE) and 1 or 0,
    'item', is_item(job) and 1 or 0, 'ready', is_ready and 1 or 0, 'ahead', ahead, 'reasons', reasons }
end

-- A damaged record, or another damaged key, is no obstacle to the explanations of the other jobs.
local function explain(surveys, id)
  local done, row, fault = pcall(describe, surveys, id)
  if done and row then return row end
  if done and fault == 'NOTFOUND' then return false end
  return { 'id', id, 'unreadable', done and fault or 'DAMAGED' }
end

register('explain', { 'no-writes' }, function(args)
  if #check_ids(args.ids) > MAX_IDS then refuse('INVALID', string.format('`ids` must be a list of 1 to %d', MAX_IDS)) end
  local reply, surveys = {}, { front = front.new_survey(), staff = staff.new_survey() }
  for place, id in ipairs(args.ids) do reply[place] = explain(surveys, id) end
  return reply
end)
