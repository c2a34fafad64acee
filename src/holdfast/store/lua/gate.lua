-- gate: whether a queue, and a job of it, may start now. These functions only read.
--
-- `claim` and `pools` act on the answers, and `explain` reports them, so both follow the same rules: a rule that belongs to
-- starting jobs is added here, and nowhere else. An answer may be out of date if another call left it half done, such as a
-- slot whose holder has ended; `claim` repairs that and asks again.

local DEADLINE, LIMITED, has, limits, setting = core.DEADLINE, core.LIMITED, core.has, core.limits, core.setting

local gate = {}

-- Whether each of some queues is paused: a list of 1 and 0, or nil if none is.
function gate.paused(queues)
  return markers.paused and redis.call('SMISMEMBER', key.paused(), unpack(queues)) or nil
end

function gate.is_paused(queue) return markers.paused and redis.call('SISMEMBER', key.paused(), queue) == 1 or false end

-- Why no job of a queue may start: `paused` or `concurrency`, else nil; and how many jobs may.
function gate.queue(queue)
  if gate.is_paused(queue) then return 'paused', 0 end
  local concurrency = setting('concurrency', queue)
  if concurrency == 0 then return nil, math.huge end
  local room = concurrency - redis.call('ZCARD', key.index[queue].running)
  return room < 1 and 'concurrency' or nil, room
end

-- Why a job may not start: `deadline`, or `limit` and which; else nil. The third value is the names of its limits, the fourth how
-- they parked it before (see `limits.park`). `used` are slots that others are about to take, if any: limit -> number.
function gate.job(job, used)
  if job.flags == 0 then return nil end
  if has(job.flags, DEADLINE) and tonumber(redis.call('HGET', key.job(job.id), 'd') or now + 1) <= now then return 'deadline' end
  if not has(job.flags, LIMITED) then return nil end
  local names, spell = unpack(redis.call('HMGET', key.job(job.id), 'l', 'm'))
  for limit in limits.names_in(names) do
    if not limits.has_slots(limit, 1 + (used and used[limit] or 0)) then return 'limit', limit, names, spell end
  end
  return nil, nil, names
end

core.gate = gate
