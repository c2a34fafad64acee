-- staff: the live workers of a queue, as far as one call needs to know them. These functions only read.

local IDLE_TIMEOUT, executors_of, queue_sets = core.IDLE_TIMEOUT, core.executors_of, core.queue_sets
local HEARTBEAT_TIMEOUT = constants.HEARTBEAT_TIMEOUT

local staff = { MAX_LISTED = 10 } -- names of workers or queues

local MAX_WORKERS = 500 -- of a queue that are asked whether they know a task
local MAX_SAMPLED = 50 -- whose jobs are counted, or whose queues are listed
local MAX_REPORTS = 1000 -- that one call reads
local MAX_TASKS = 100 -- that one call lists for a queue
local PROGRAM = 'holdfast.program'

function staff.new_survey()
  return { queues = {}, lists = {}, texts = {}, reports = {}, scanned = {}, answers = {}, left = MAX_REPORTS,
    count = queue_sets.new_count() }
end

local function list_of(value) return type(value) == 'table' and value or {} end

local function parse(text)
  local done, about = pcall(cjson.decode, text)
  if not done or type(about) ~= 'table' then return {} end
  local report = { draining = about.draining == true, exec = about.allow_exec == true, queues = list_of(about.queues) }
  if type(about.tasks) ~= 'table' then return report end
  report.tasks = {}
  for _, task in ipairs(about.tasks) do
    if type(task) == 'string' then report.tasks[task] = true end
  end
  return report
end

-- What a worker reports, as text; nil if this call has read too many.
local function text_of(survey, worker)
  local text = survey.texts[worker]
  if text or survey.left <= 0 then return text end
  survey.left = survey.left - 1
  text = redis.call('HGET', key.worker(worker), 'about') or ''
  survey.texts[worker] = text
  return text
end

-- The same, parsed.
local function report_of(survey, worker)
  local report = survey.reports[worker]
  if report then return report end
  local text = text_of(survey, worker)
  report = text and parse(text)
  survey.reports[worker] = report
  return report
end

-- The live workers of a set of queues.
local function live_of(survey, set)
  local found = survey.lists[set]
    or redis.call('ZRANGEBYSCORE', key.live(set), now - HEARTBEAT_TIMEOUT, '+inf', 'LIMIT', 0, MAX_WORKERS)
  survey.lists[set] = found
  return found
end

local function add_live(survey, found, set)
  for _, worker in ipairs(live_of(survey, set)) do
    if #found >= MAX_WORKERS then return end
    if not found[worker] then found[worker], found[#found + 1] = true, worker end
  end
end

-- The workers of a queue: the number of live ones, their names, and the number of idle executors.
function staff.of_queue(survey, queue)
  local found = survey.queues[queue]
  if found then return found end
  local since = now - IDLE_TIMEOUT
  found = { workers = {}, live = survey.count(queue), idle = redis.call('ZCOUNT', key.idle(queue), since, '+inf') }
  add_live(survey, found.workers, queue)
  for _, set in ipairs(queue_sets.serving(queue)) do
    add_live(survey, found.workers, set.id)
    if found.idle == 0 then found.idle = redis.call('ZCOUNT', key.idle(set.id), since, '+inf') end
  end
  survey.queues[queue] = found
  return found
end

-- Whether all live workers drain.
function staff.is_draining(survey, found)
  if found.live > #found.workers then return false end
  for _, worker in ipairs(found.workers) do
    local report = report_of(survey, worker)
    if not report or not report.draining then return false end
  end
  return true
end

local function runs(report, task)
  if report.draining then return false end
  if task == PROGRAM then return report.exec end
  return not report.tasks or report.tasks[task]
end

-- Whether a report may say that its worker runs a task. Most say that it does not, and need not be parsed to find out. Scanning
-- it for one task is cheaper than parsing it; for several it is not.
local function may_run(survey, worker, text, task)
  if survey.scanned[worker] then return true end
  survey.scanned[worker] = true
  return task == PROGRAM or string.find(text, '"' .. task .. '"', 1, true) or not string.find(text, '"tasks"', 1, true)
end

-- Whether a worker runs a task; nil if this call has read too many reports.
local function worker_runs(survey, worker, task)
  local answers = survey.answers[task] or {}
  survey.answers[task] = answers
  if answers[worker] == nil then
    local text = text_of(survey, worker)
    if not text then return nil end
    answers[worker] = may_run(survey, worker, text, task) and runs(report_of(survey, worker), task) or false
  end
  return answers[worker]
end

-- Whether a worker that does not drain would run a task. If there are too many to ask all of them, it is assumed.
function staff.would_run(survey, found, task)
  for _, worker in ipairs(found.workers) do
    if worker_runs(survey, worker, task) ~= false then return true end
  end
  return found.live > #found.workers
end

-- Names of the workers that do not drain.
function staff.names(survey, found)
  local names = {}
  for _, worker in ipairs(found.workers) do
    local report = #names < staff.MAX_LISTED and report_of(survey, worker)
    if report and not report.draining then names[#names + 1] = worker end
  end
  return names
end

-- The tasks that the workers know, once per call and queue: they suggest what was meant.
function staff.tasks(survey, found)
  local list, seen = {}, {}
  for _, worker in ipairs(found.are_tasks_listed and {} or found.workers) do
    local report = #list < MAX_TASKS and report_of(survey, worker)
    for task in pairs(report and report.tasks or {}) do
      if not seen[task] and #list < MAX_TASKS then seen[task], list[#list + 1] = true, task end
    end
  end
  found.are_tasks_listed = true
  table.sort(list)
  return list
end

-- How many jobs the workers hold, of some of them if there are many.
function staff.held(survey, found)
  if found.held then return found.held end
  found.held = 0
  for place = 1, math.min(#found.workers, MAX_SAMPLED) do
    for _, executor in ipairs(executors_of(found.workers[place])) do found.held = found.held + redis.call('HLEN', key.held(executor)) end
  end
  return found.held
end

-- Some of the queues and patterns that live workers serve; nil if no worker is live.
function staff.served(survey)
  if survey.served ~= nil then return survey.served or nil end
  local workers = redis.call('ZREVRANGEBYSCORE', key.workers(), '+inf', now - HEARTBEAT_TIMEOUT, 'LIMIT', 0, MAX_SAMPLED)
  local list, seen = {}, {}
  for _, worker in ipairs(workers) do
    for _, queue in ipairs((report_of(survey, worker) or {}).queues or {}) do
      if type(queue) == 'string' and not seen[queue] and #list < staff.MAX_LISTED then seen[queue], list[#list + 1] = true, queue end
    end
  end
  survey.served = workers[1] and list or false
  return survey.served or nil
end

core.staff = staff
