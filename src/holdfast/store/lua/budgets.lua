-- budgets: which retries an error uses up.
--
-- An error uses up a retry. If a limit stopped the attempt, and the job has a budget for attempts that this limit stops, it
-- uses up that one: `timeouts`, `stalls` or `out_of_memory`, by its failure group. Crashes and lost leases have budgets of
-- their own; see lease.lua.
--
-- A retry is counted when it is claimed (claim.lua), a stopped attempt when it ends. The three counters are the last bytes
-- of the status, 2 bytes each: the 17th value of a job, kept as text so that it needs no unpacking until it is used.

local NO_STOPS, RETRYING = core.NO_STOPS, core.RETRYING
local check_optional, option, permanent, with = core.check_optional, core.option, core.permanent, core.with

local COUNTERS, MAX_COUNT = '>I2I2I2', 65535
local NAMES = { 'timeouts', 'stalls', 'out_of_memory' } -- in the order of the counters
local PLACE_OF = { timeout = 1, stalled = 2, memory = 3 } -- by failure group; see job/retries.py
local budgets = {}

function budgets.check(batch)
  for _, name in ipairs(NAMES) do check_optional(batch[name], name, 0, constants.MAX_RETRIES) end
end

local function used_by(job)
  local timeouts, stalls, out_of_memory = struct.unpack(COUNTERS, job.stops or NO_STOPS)
  return { timeouts, stalls, out_of_memory }
end

-- Use up a retry, or an attempt of the budget for this failure group. Returns how many were used up before; or nil if none
-- is left.
function budgets.charge(job, group)
  local place = PLACE_OF[group]
  local max = place and job.spec[NAMES[place]]
  if not max then
    if job.retries_used >= option(job, 'retries') then return nil end
    job.flags = with(job.flags, RETRYING, true)
    return job.retries_used
  end
  local used = used_by(job)
  local before = used[place]
  used[place] = math.min(before + 1, MAX_COUNT)
  job.stops = struct.pack(COUNTERS, unpack(used))
  return before < max and before or nil
end

-- A new life: all budgets are whole, and flags of the last attempt are gone.
function budgets.reset(job)
  job.retries_used, job.crashes_used, job.lost_used, job.misses, job.flags = 0, 0, 0, 0, permanent(job.flags)
  if job.stops then job.stops = NO_STOPS end
end

-- Add the budgets that the job has, each with what it used.
function budgets.describe(job, reply)
  local used = used_by(job)
  for place, name in ipairs(NAMES) do
    if job.spec[name] then
      for _, part in ipairs({ name, job.spec[name], name .. '_used', used[place] }) do reply[#reply + 1] = part end
    end
  end
end

core.budgets = budgets
