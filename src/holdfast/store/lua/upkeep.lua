-- upkeep: advance time without claiming, for programs that do only this; claims and renewals do it as well.
--
--   args.refills   maximum number of schedules to refill (0)
--
-- Errors: INVALID. Returns how many timers were due before, and how many still are; how many of those stay, as their jobs
-- cannot be read here; 1 if more ended jobs are left than one call deletes, else 0; the milliseconds until the next timer or
-- step of an operation (-1: none); and the names of schedules to refill. A call handles a bounded number of timers: repeat it while others are due.

local advance, check_optional, overdue = core.advance, core.check_optional, core.overdue
local publish_events, record_pulse, refills = core.publish_events, core.record_pulse, core.refills
local register = core.register
local MAX_BATCH = constants.MAX_BATCH

local function next_timer(first)
  local timer, step = redis.call('ZRANGE', key.timers, first, first, 'WITHSCORES'), core.operations.next_step()
  if not timer[1] then return step or -1 end
  return math.min(step or math.huge, math.max(0, tonumber(timer[2]) - now))
end

register('upkeep', { 'allow-oom' }, function(args)
  check_optional(args.refills, 'refills', 1, MAX_BATCH)
  local before = overdue.count()
  record_pulse()
  advance()
  publish_events('upkeep')
  local stay, surplus = unreadable_timers, markers.surplus and 1 or 0
  if call_failed then stay, surplus = stay + overdue.unfinished(), 0 end -- the same may fail again immediately
  return { before, overdue.count(), stay, surplus, next_timer(unreadable_timers), refills(args) }
end)
