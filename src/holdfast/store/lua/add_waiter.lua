-- add_waiter: register an inbox with jobs, to be notified when they end.
--
--   args.ids     up to 1,000
--   args.inbox   a name that only the caller uses
--
-- Errors: INVALID. Returns the key of the list on which the ids of ended jobs arrive, and the state of each job ('' if it does
-- not exist, NEWER or DAMAGED if it cannot be read). Jobs that have already ended are not announced. An announcement is a
-- hint: check again every few seconds.

local FINAL, MAX_WAITERS, check_ids, check_name = core.FINAL, core.MAX_WAITERS, core.check_ids, core.check_name
local load_job, register = core.load_job, core.register

local function add_inbox(id, waiters, inbox)
  waiters = waiters or ''
  if string.find(' ' .. waiters .. ' ', ' ' .. inbox .. ' ', 1, true) then return end
  local _, count = string.gsub(waiters, '%S+', '')
  -- The oldest waiter is dropped: it has waited longest or is gone. If not, it asks again in a few seconds.
  if count >= MAX_WAITERS then waiters = string.gsub(waiters, '^%S+ ', '') end
  redis.call('HSET', key.job(id), 'w', waiters == '' and inbox or waiters .. ' ' .. inbox)
end

register('add_waiter', { 'allow-oom' }, function(args)
  check_name(args.inbox, 'an inbox', 40, '%w')
  local reply = { key.inbox(args.inbox) }
  for _, id in ipairs(check_ids(args.ids)) do
    local job, waiters = load_job(id, 'w')
    reply[#reply + 1] = job and job.state or waiters == 'NOTFOUND' and '' or waiters
    if job and not FINAL[job.state] then add_inbox(id, waiters, args.inbox) end
  end
  return reply
end)
