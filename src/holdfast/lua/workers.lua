-- workers: those that gave a sign of life, the latest first.
--
--   args.since   only those seen after this time
--
-- Returns for each: worker, time last seen, what it says of itself, and a list of the jobs that it holds: executor, id,
-- attempt.

local function held_by(worker)
  local jobs = {}
  for _, executor in ipairs(executors_of(worker)) do
    local held = redis.call('HGETALL', key.held(executor))
    for place = 1, math.min(#held, 2 * MOST), 2 do add_three(jobs, executor, held[place], (parse_marks(held[place + 1]))) end
  end
  return jobs
end

verb('workers', { 'no-writes' }, function(args)
  local reply = {}
  local list = redis.call('ZREVRANGEBYSCORE', key.workers(), '+inf', args.since or '-inf', 'WITHSCORES', 'LIMIT', 0, MOST)
  for place = 1, #list, 2 do
    local worker = list[place]
    reply[#reply + 1] = { worker, tonumber(list[place + 1]), redis.call('HGET', key.worker(worker), 'about') or '',
      held_by(worker) }
  end
  return reply
end)
