-- depend: have a job that has not started wait for more jobs, or for fewer.
--
--   args.id          the job
--   args.add         ids of jobs to wait for
--   args.remove      ids of jobs not to wait for any more
--   args.on_failed   if one of them fails or is cancelled; kept if not given; see enqueue.lua
--
-- Refuses NOTFOUND; STATE if the job runs or has ended; CYCLE; INVALID. Returns the job's state, and how many jobs it waits for.

local MOST_LOOKED_AT = 10000 -- jobs, for cycles

local function must_be_there(id, words)
  local job, field = load_job(job_id(id), 'b')
  if not job then refuse('NOTFOUND', 'there is no job ' .. id .. words .. '; it may have been deleted') end
  return job, field
end

-- Refuse if a job would wait for itself: look at all that those to be added wait for.
local function check_cycle(id, added)
  local seen, queue, at = {}, {}, 1
  for _, other in ipairs(added) do queue[#queue + 1] = other end
  while at <= #queue do
    if queue[at] == id then refuse('CYCLE', 'job ' .. id .. ' would wait for itself') end
    if at > MOST_LOOKED_AT then refuse('INVALID', 'too many jobs wait for each other to look for cycles') end
    for _, other in ipairs(redis.call('HKEYS', key.after(queue[at]))) do
      if not seen[other] then
        seen[other] = true
        queue[#queue + 1] = other
      end
    end
    at = at + 1
  end
end

local function check_depend(args)
  local job, field = must_be_there(args.id, '')
  if job.state == 'running' or FINAL[job.state] then
    refuse('STATE', 'job ' .. args.id .. ' is ' .. job.state .. ': only a job that has not started can wait for others')
  end
  if args.on_failed and not after.LETTER_OF_POLICY[args.on_failed] then
    refuse('INVALID', "`on_failed` must be 'block', 'cancel' or 'run'")
  end
  local known = {}
  for _, id in ipairs(list_of(args.add or {}, 'add', 0)) do known[id] = must_be_there(id, ' to wait for') end
  for _, id in ipairs(list_of(args.remove or {}, 'remove', 0)) do job_id(id) end
  if redis.call('HLEN', key.after(args.id)) + #(args.add or {}) > MOST then
    refuse('INVALID', string.format('job %s would wait for more than %d jobs', args.id, MOST))
  end
  check_cycle(args.id, args.add or {})
  return job, field, known
end

-- Returns how many jobs it waits for that are not as they must be, and whether one of them has ended so.
local function relink(job, args, known, policy)
  local last, left, is_doomed = 0, 0, false
  for _, id in ipairs(args.remove or {}) do
    redis.call('HDEL', key.after(job.id), id)
    redis.call('ZREM', key.dependents(id), job.id)
  end
  local marks = redis.call('HGETALL', key.after(job.id))
  for at = 1, #marks, 2 do
    local place, letter = string.match(marks[at + 1], '^(%d+)(.)$')
    last = math.max(last, tonumber(place))
    if not known[marks[at]] then
      local wrong = after.link(job.id, reserve_arrivals(1) + 1, marks[at], place, letter, policy)
      left, is_doomed = left + wrong, is_doomed or (wrong == 1 and letter ~= '-')
    end
  end
  for _, id in ipairs(args.add or {}) do
    last = last + 1
    after.mark_awaited(known[id])
    local letter = after.letter_of(known[id])
    local wrong = after.link(job.id, reserve_arrivals(1) + 1, id, last, letter, policy)
    left, is_doomed = left + wrong, is_doomed or (wrong == 1 and letter ~= '-')
  end
  return left, is_doomed and policy == 'c'
end

verb('depend', {}, function(args)
  local job, field, known = check_depend(args)
  local _, policy, due = after.parse(field or '0 b 0')
  if job.state == 'scheduled' then due = tonumber(redis.call('ZSCORE', key.timers(), job.id)) end
  policy = args.on_failed and after.LETTER_OF_POLICY[args.on_failed] or policy
  job.flags = with(job.flags, AFTER, true)
  local left, is_doomed = relink(job, args, known, policy)
  local fields = { 'b', after.pack(left, policy, due) }
  if is_doomed then
    unlink(job)
    note(job, 'C', 'a job that it waits for has failed')
    conclude(job, 'cancelled', nil, fields)
  elseif left > 0 and job.state ~= 'blocked' then
    after.to_blocked(job, fields)
  else
    redis.call('HSET', key.job(job.id), 's', pack_status(job), unpack(fields))
    if left == 0 and job.state == 'blocked' then after.unblock(job, due) end
  end
  settle()
  publish()
  return { job.state, left }
end)
