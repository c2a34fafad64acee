-- upkeep: move time on, and claim nothing. For programs that do this only; a claim and a renewal do it in passing.
--
--   args.refills   how many schedules whose times run out to name at most (0)
--
-- Returns how many timers had passed before, and how many have still; how many of these stay, as their jobs cannot be read here; 1 if
-- there are more ended jobs to remove than one call does, else 0; the milliseconds until the next timer (-1: there is none); and the
-- names of schedules to refill. A call moves a bounded number of timers: call again while there are others than those that stay.

local MAX_BATCH, optional, publish, verb = core.MAX_BATCH, core.optional, core.publish, core.verb
local advance, beat = core.advance, core.beat
local overdue, refills = core.overdue, core.refills

local function next_timer(first)
  local timer = redis.call('ZRANGE', key.timers, first, first, 'WITHSCORES')
  return timer[1] and math.max(0, tonumber(timer[2]) - now) or -1
end

verb('upkeep', { 'allow-oom' }, function(args)
  optional(args.refills, 'refills', 1, MAX_BATCH)
  local before = overdue.count()
  beat()
  advance()
  publish('upkeep')
  local stay, surplus = budget.unreadable, signs.surplus and 1 or 0
  if budget.has_failed then stay, surplus = stay + overdue.unfinished(), 0 end -- the same may fail again, at once
  return { before, overdue.count(), stay, surplus, next_timer(budget.unreadable), refills(args) }
end)
