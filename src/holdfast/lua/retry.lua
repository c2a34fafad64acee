-- retry: run ended jobs again, with all their budgets as new. Checkpoint, history and attempt numbers go on.
--
--   args.ids     up to 1,000
--   args.token   see call.lua
--
-- Returns an answer per id: waiting, NOTFOUND, or STATE if it has not ended.

local function retry(id, token)
  local job, last = load_job(id, 'k')
  if not job then return 'NOTFOUND' end
  local answer = remembered(token, last)
  if answer then return answer end
  if not FINAL[job.state] then return 'STATE' end
  job.arrival = reserve_arrivals(1) + 1
  job.retried, job.crashes, job.lost, job.misses, job.flags = 0, 0, 0, 0, 0
  redis.call('HDEL', key.job(id), 'r', 'g')
  redis.call('DEL', key.blob('r', id))
  local place, words = note(job, 'R')
  to_waiting(job, { place, words, 'k', token .. ' waiting' })
  event('retried', id)
  settle()
  wake(job.queue)
  return 'waiting'
end

verb('retry', { 'allow-oom' }, function(args)
  local answers, token = {}, check_token(args)
  for place, id in ipairs(job_ids(args.ids)) do answers[place] = retry(id, token) end
  publish()
  return answers
end)
