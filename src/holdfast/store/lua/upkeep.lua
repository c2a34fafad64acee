-- upkeep: move time on, and claim nothing. For programs that do this only; a claim and a renewal do it in passing.
--
--   args.refills   how many schedules whose times run out to name at most (0)
--
-- Returns how many timers had passed before, and how many have still; how many of these stay, as their jobs cannot be read here; 1 if
-- there are more ended jobs to remove than one call does, else 0; the milliseconds until the next timer (-1: there is none); and the
-- names of schedules to refill. A call moves a bounded number of timers: call again while there are others than those that stay.

local MAX_BATCH, check_optional, publish_events, register = core.MAX_BATCH, core.check_optional, core.publish_events, core.register
local advance, record_pulse = core.advance, core.record_pulse
local overdue, refills = core.overdue, core.refills

local function next_timer(first)
  local timer = redis.call('ZRANGE', key.timers, first, first, 'WITHSCORES')
  return timer[1] and math.max(0, tonumber(timer[2]) - now) or -1
end

register('upkeep', { 'allow-oom' }, function(args)
  check_optional(args.refills, 'refills', 1, MAX_BATCH)
  local before = overdue.count()
  record_pulse()
  advance()
  publish_events('upkeep')
  local stay, surplus = unreadable_timers, markers.surplus and 1 or 0
  if call_failed then stay, surplus = stay + overdue.unfinished(), 0 end -- the same may fail again, at once
  return { before, overdue.count(), stay, surplus, next_timer(unreadable_timers), refills(args) }
end)
