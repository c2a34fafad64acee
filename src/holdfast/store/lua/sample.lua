-- sample: jobs of a queue in one state, chosen at random.
--
--   args.queue    the queue
--   args.state    waiting, throttled or scheduled
--   args.limit    up to 200
--   args.size     up to 1,000: the size of a sample that several calls return, each `limit` of it (default: `limit`)
--   args.skip     how many of it earlier calls have returned (default: 0)
--
-- For estimates of what a backlog consists of. The index is divided into `size` stretches of equal length, and one job of each
-- is chosen at random: so each job is equally likely, first and last ones have their share, and the cost does not depend on how
-- many there are. If there are `size` or fewer, all are returned, each once.
--
-- Errors: INVALID.
--
-- Returns the time, how many jobs are in that state, then the jobs as `get` with `brief` describes them; jobs that cannot be
-- read are left out.

local check_integer, check_queue, describe = core.check_integer, core.check_queue, core.describe
local refuse, register = core.refuse, core.register
local MAX_SAMPLE, MAX_SIZE = 200, 1000
local STATES = { waiting = true, throttled = true, scheduled = true }

-- The rank of a job of the stretch with this number.
local function choose(number, size, total)
  if total <= size then return number end
  return math.random(math.floor(number * total / size), math.floor((number + 1) * total / size) - 1)
end

register('sample', { 'no-writes' }, function(args)
  local queue, limit = check_queue(args.queue), check_integer(args.limit, '`limit`', 1, MAX_SAMPLE)
  local size = check_integer(args.size or limit, '`size`', limit, MAX_SIZE)
  local skip = check_integer(args.skip or 0, '`skip`', 0, size)
  if not STATES[args.state] then refuse('INVALID', 'the state must be waiting, throttled or scheduled') end
  local index = key.index[queue][args.state]
  local total = redis.call('ZCARD', index)
  local reply = { now, total }
  for number = skip, math.min(skip + limit, size, total) - 1 do
    local rank = choose(number, size, total)
    local job = describe(redis.call('ZRANGE', index, rank, rank)[1], true, true)
    if job[3] ~= 'unreadable' then reply[#reply + 1] = job end
  end
  return reply
end)
