-- front: the jobs at the front of a queue, as the next claims would take them: which start, and what holds the others back. These
-- functions only read.
--
-- Jobs that stand before another may take the last slot that it needs, so they are asked in their order, and what each would
-- take counts for those behind it. Up to MAX_JOBS are; the others are assumed to start.

local PRIORITY_STEP, gate, limits, load_job = core.PRIORITY_STEP, core.gate, core.limits, core.load_job

local front = { MAX_CHECKS = 1000 } -- jobs that one call asks about

local MAX_JOBS = 100 -- of a queue
local NONE = {}

-- What one call has found out: the fronts of queues, and how many more jobs it may ask about.
function front.new_survey() return { fronts = {}, checks = front.MAX_CHECKS } end

-- Whether the payload of a job is in the store; without it the job cannot start.
function front.has_payload(id, field)
  return field and (field ~= '>' or redis.call('EXISTS', key.blob('p', id)) == 1) or false
end

-- Why a waiting job of an open queue cannot start, and which limit it is: an answer of the gate, `payload-lost`, or nil; and the
-- names of its limits. `used`: limit -> slots that jobs ahead of it take.
function front.ask(job, payload, used)
  local why, limit, names = gate.job(job, used)
  if not why and not front.has_payload(job.id, payload) then why = 'payload-lost' end
  return why, limit, names
end

-- The limits that one of the first jobs takes when it starts; nil if it does not.
local function ask_first(id, used)
  local job, payload = load_job(id, 'p')
  if not job or job.state ~= 'waiting' then return nil end
  local why, _, names = front.ask(job, payload, used)
  if why then return nil end
  local taken = names and {} or NONE
  for limit in limits.names_in(names) do taken[#taken + 1], used[limit] = limit, (used[limit] or 0) + 1 end
  return taken
end

-- The same within the bounds of the call. A job with a damaged record does not start: claims skip it.
local function limits_taken(survey, id, used)
  if survey.checks <= 0 then return NONE end
  survey.checks = survey.checks - 1
  local done, taken = pcall(ask_first, id, used)
  return done and taken or nil
end

-- The first jobs of a queue: for each the limits that it takes, or false.
local function front_of(survey, queue)
  local found = survey.fronts[queue]
  if found then return found end
  found = { used = {} }
  for place, id in ipairs(redis.call('ZRANGE', key.index[queue].waiting, 0, MAX_JOBS - 1)) do
    found[place] = limits_taken(survey, id, found.used) or false
  end
  survey.fronts[queue] = found
  return found
end

-- How many jobs stand before a job in its queue. A throttled job will wait in its old position, others behind all of their
-- priority.
local function rank_of(job)
  local index = key.index[job.queue].waiting
  local rank = job.state == 'waiting' and redis.call('ZRANK', index, job.id)
  if rank then return rank end
  local place = job.state == 'throttled' and job.arrival or PRIORITY_STEP
  return redis.call('ZCOUNT', index, '-inf', '(' .. string.format('%.0f', job.priority * PRIORITY_STEP + place))
end

-- How many jobs start before a job, and the slots of limits that they take: limit -> slots.
function front.before(survey, job)
  local found, rank = front_of(survey, job.queue), rank_of(job)
  local count, used = math.max(0, rank - #found), {}
  for place = 1, math.min(rank, #found) do
    if found[place] then count = count + 1 end
    for _, limit in ipairs(found[place] or NONE) do used[limit] = (used[limit] or 0) + 1 end
  end
  return count, used
end

core.front = front
