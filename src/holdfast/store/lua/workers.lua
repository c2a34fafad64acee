-- workers: list workers, oldest heartbeat first. deregister: forget a worker that is gone.
--
--   workers(since, cursor)   a page of the workers whose last heartbeat is not before `since` (default: all): the cursor of the
--                            next page ('' after the last), and for each: worker, last heartbeat, whether it is live, its
--                            queues (see queue_sets.lua), its description, and jobs that it holds: executor, id, attempt, queue,
--                            task, process id, claim time, last heartbeat (0: unknown), whether it has stalled. A worker that holds many is on several pages, each with other
--                            jobs; so is one that sends a heartbeat meanwhile, with the same ones
--   workers(names, cursor)   the same of these workers, in this order
--   workers(brief, ...)      instead of its jobs, their number
--   deregister(worker)       Errors: NOWORKER, STATE if it is live or holds jobs: their leases must expire first

local check_list, check_worker, executors_of, load_held = core.check_list, core.check_worker, core.executors_of, core.load_held
local is_stalled, last_heartbeat = core.is_stalled, core.last_heartbeat
local parse_hold, read_page, refuse, register = core.parse_hold, core.read_page, core.refuse, core.register
local sorts_before = core.sorts_before
local HEARTBEAT_TIMEOUT = constants.HEARTBEAT_TIMEOUT

local WORKERS_PER_PAGE, JOBS_PER_PAGE = 100, 300
local HOLD_SIZE = 9 -- values

-- `timer`: when its lease ends.
local function hold_of(executor, id, marks, timer)
  local attempt = parse_hold(marks)
  local job, run = load_held(executor, id, attempt)
  if not job then return end
  return executor, id, attempt, job.queue, job.task, run.pid, run.claimed, last_heartbeat(job, timer, marks),
    is_stalled(job, timer) and 1 or 0
end

-- When the leases of the first of some jobs end.
local function timers_of(ids, count)
  return ids[1] and count > 0 and redis.call('ZMSCORE', key.timers, unpack(ids, 1, math.min(#ids, count))) or {}
end

-- The ids of jobs that an executor holds, after one of them, in their order; and id -> hold.
local function ids_after(executor, last)
  local held, ids, marks = redis.call('HGETALL', key.held(executor)), {}, {}
  for place = 1, #held, 2 do
    local id = held[place]
    marks[id] = held[place + 1]
    if not last or sorts_before(last, id) then ids[#ids + 1] = id end
  end
  if last or #ids > JOBS_PER_PAGE then table.sort(ids, sorts_before) end
  return ids, marks
end

-- Add the jobs of a worker after a position until the page is full. Returns the new position, nil if these are all.
local function add_jobs(jobs, worker, left, from, last)
  local executors = executors_of(worker)
  table.sort(executors, sorts_before)
  for _, executor in ipairs(executors) do
    if not from or executor == from or sorts_before(from, executor) then
      local ids, marks = ids_after(executor, executor == from and last or nil)
      local timers = timers_of(ids, left)
      for place, id in ipairs(ids) do
        if place > left then return { executor, ids[place - 1] or '' } end
        for _, value in ipairs({ hold_of(executor, id, marks[id], tonumber(timers[place] or '')) }) do jobs[#jobs + 1] = value end
      end
      left = left - #ids
    end
  end
end

-- A cursor is: score and name of the last worker; behind it executor and id, if the worker holds more jobs.
local function parse_cursor(text)
  if not text or text == '' then return {} end
  local score, worker, executor, id = string.match(text, '^(%d+) (%S+) ?(%S*) ?(%S*)$')
  if not score then refuse('INVALID', 'expected the cursor of an earlier page') end
  return { score = score, worker = worker, executor = executor ~= '' and executor or nil, id = id }
end

local function describe_worker(worker, seen)
  local fields = redis.call('HMGET', key.worker(worker), 'queues', 'about')
  return { worker, seen, seen >= now - HEARTBEAT_TIMEOUT and 1 or 0, fields[1] or '', fields[2] or '' }
end

local function count_jobs(worker)
  local count = 0
  for _, executor in ipairs(executors_of(worker)) do count = count + redis.call('HLEN', key.held(executor)) end
  return count
end

local function workers_after(cursor, since)
  if cursor.score then return read_page(key.workers(), WORKERS_PER_PAGE, cursor.score, cursor.worker) end
  return redis.call('ZRANGEBYSCORE', key.workers(), since or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, WORKERS_PER_PAGE)
end

-- Those of some workers that exist, after the one of the cursor.
local function named_after(cursor, names)
  local list, is_before = {}, cursor.worker ~= nil
  for _, worker in ipairs(check_list(names, 'names', 1)) do
    local seen = not is_before and redis.call('ZSCORE', key.workers(), check_worker(worker))
    if seen then list[#list + 1], list[#list + 2] = worker, seen end
    if #list == 2 * WORKERS_PER_PAGE then return list end
    is_before = is_before and worker ~= cursor.worker
  end
  return list
end

register('workers', { 'no-writes' }, function(args)
  local cursor, left, reply = parse_cursor(args.cursor), JOBS_PER_PAGE, { '' }
  local list, following = {}, args.names and named_after(cursor, args.names) or workers_after(cursor, args.since)
  if cursor.executor then list = { cursor.worker, cursor.score } end
  for _, value in ipairs(following) do list[#list + 1] = value end
  for place = 1, #list, 2 do
    local row, jobs, position = describe_worker(list[place], tonumber(list[place + 1])), {}, nil
    if args.brief then
      row[6] = count_jobs(list[place])
    else
      local from = place == 1 and cursor or {}
      position = add_jobs(jobs, list[place], left, from.executor, from.id)
      row[6], left = jobs, left - #jobs / HOLD_SIZE
    end
    reply[#reply + 1] = row
    reply[1] = string.format('%s %s', list[place + 1], list[place])
    if position then
      reply[1] = string.format('%s %s %s', reply[1], position[1], position[2])
      return reply
    end
    if left <= 0 then return reply end
  end
  if #following < 2 * WORKERS_PER_PAGE then reply[1] = '' end
  return reply
end)

register('deregister', { 'allow-oom' }, function(args)
  check_worker(args.worker)
  local seen = redis.call('ZSCORE', key.workers(), args.worker)
  if not seen then refuse('NOWORKER', 'worker ' .. args.worker .. ' does not exist; `holdfast workers` lists them') end
  if tonumber(seen) >= now - HEARTBEAT_TIMEOUT then
    refuse('STATE', string.format('worker %s sent a heartbeat %.0f seconds ago: stop it first; if it is dead, wait until '
      .. '%.0f seconds after its last heartbeat', args.worker, (now - seen) / 1000, HEARTBEAT_TIMEOUT / 1000))
  end
  for _, executor in ipairs(executors_of(args.worker)) do
    if redis.call('EXISTS', key.held(executor)) == 1 then
      refuse('STATE', 'worker ' .. args.worker .. ' holds jobs: wait until their leases expire')
    end
  end
  core.queue_sets.forget_worker(args.worker)
  return 'OK'
end)
