-- upkeep: move time on, and claim nothing. For programs that do this only; a claim and a renewal do it in passing.
--
--   args.refills   how many schedules whose times run out to name at most (0)
--
-- Returns how many timers had passed before, and how many have still; the milliseconds until the next one (-1: there is none); and the
-- names of schedules to refill. Moves a bounded number of timers: call again while some have passed.

local MOST, optional, publish, verb = core.MOST, core.optional, core.publish, core.verb
local advance, beat = core.advance, core.beat
local overdue, refills = core.overdue, core.refills

local function next_timer()
  local timer = redis.call('ZRANGE', key.timers, 0, 0, 'WITHSCORES')
  return timer[1] and math.max(0, tonumber(timer[2]) - now) or -1
end

verb('upkeep', { 'allow-oom' }, function(args)
  optional(args.refills, 'refills', 1, MOST)
  local before = overdue.count()
  beat()
  advance()
  publish('upkeep')
  return { before, overdue.count(), next_timer(), refills(args) }
end)
