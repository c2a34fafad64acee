-- retry: run ended jobs again, with all their budgets as new. Checkpoint, history and attempt numbers go on.
--
--   args.ids     up to 1,000
--   args.token   see call.lua; not given: the call may be carried out twice
--
-- Returns an answer per id: waiting, NOTFOUND, STATE if it has not ended, or EXISTS if another job has its unique key now.

local function retry(id)
  local job = load_job(id)
  if not job then return 'NOTFOUND' end
  if not FINAL[job.state] then return 'STATE' end
  if has(job.flags, UNIQUE) and take_key_again(job) then return 'EXISTS' end
  job.arrival = reserve_arrivals(1) + 1
  job.retried, job.crashes, job.lost, job.misses, job.flags = 0, 0, 0, 0, lasting(job.flags)
  redis.call('HDEL', key.job(id), 'r', 'g')
  redis.call('DEL', key.blob('r', id))
  note(job, 'R')
  to_waiting(job)
  event('retried', id)
  settle()
  wake(job.queue)
  return 'waiting'
end

verb('retry', { 'allow-oom' }, function(args)
  local answers, is_idle = {}, true
  for place, id in ipairs(job_ids(args.ids)) do
    answers[place] = retry(id)
    is_idle = is_idle and answers[place] ~= 'waiting'
  end
  publish()
  return answers, is_idle
end)
