-- sample: jobs of a queue in one state, chosen at random.
--
--   args.queue    the queue
--   args.state    waiting, throttled or scheduled
--   args.limit    up to 200
--
-- For estimates of what a backlog consists of: each job is equally likely, wherever it stands, and the cost does not depend on
-- how many there are. If there are `limit` or fewer, all are returned.
--
-- Errors: INVALID.
--
-- Returns the time, how many jobs are in that state, then the jobs as `get` with `brief` describes them; jobs that cannot be
-- read are left out.

local check_integer, check_queue, describe = core.check_integer, core.check_queue, core.describe
local refuse, register = core.refuse, core.register
local MAX_SAMPLE = 200
local STATES = { waiting = true, throttled = true, scheduled = true }

register('sample', { 'no-writes' }, function(args)
  local queue, limit = check_queue(args.queue), check_integer(args.limit, '`limit`', 1, MAX_SAMPLE)
  if not STATES[args.state] then refuse('INVALID', 'the state must be waiting, throttled or scheduled') end
  local index = key.index[queue][args.state]
  local reply = { now, redis.call('ZCARD', index) }
  for _, id in ipairs(redis.call('ZRANDMEMBER', index, limit)) do
    local job = describe(id, true, true)
    if job[3] ~= 'unreadable' then reply[#reply + 1] = job end
  end
  return reply
end)
