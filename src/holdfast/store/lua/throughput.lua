-- throughput: arrivals and finished attempts of each queue in the last minutes, for autoscaling.
--
-- One hash per queue: a letter and the number of a time slot (i: jobs that became claimable; o: attempts that ended; r: their
-- total milliseconds). `flush` adds the arrivals of a call, one command per queue; attempts come from the lines of statistics.lua
-- when these are folded. Arrivals of slots that are dropped go to the series of folding.lua. A queue that already has arrivals in
-- the current slot is known to be registered.

local DAY, setting = core.DAY, core.setting

local SLOT, SLOTS = 15000, 20

-- Drop old slots when a new one begins.
local function drop_old_slots(queue, first)
  local old, list = {}, redis.call('HGETALL', key.load(queue))
  for place = 1, #list, 2 do
    local letter, slot = string.match(list[place], '^(%a)(%d+)$')
    slot = tonumber(slot) or 0
    if slot < first then
      old[#old + 1] = list[place]
      if letter == 'i' then core.keep_arrivals(queue, slot, tonumber(list[place + 1]) or 0) end
    end
  end
  if #old > 0 then redis.call('HDEL', key.load(queue), unpack(old)) end
  redis.call('PEXPIRE', key.load(queue), setting('stats_age', queue) + DAY)
end

local named = {} -- letter -> name of its field in the slot `of`

-- Returns the new total of the slot.
local function add_count(queue, slot, letter, count)
  if named.of ~= slot then named = { of = slot } end
  local field = named[letter]
  if not field then
    field = letter .. string.format('%.0f', slot)
    named[letter] = field
  end
  local total = redis.pcall('HINCRBY', key.load(queue), field, count)
  if type(total) ~= 'number' then return redis.call('DEL', key.load(queue)) end -- damaged: start over
  if total == count then drop_old_slots(queue, math.floor(now / SLOT) - SLOTS) end
  return total
end

local function store_arrivals()
  for place = 1, #arrival_counts do
    local queue = arrival_counts[place]
    local count = arrival_counts[queue]
    local total = add_count(queue, math.floor(now / SLOT), 'i', count)
    if known_queues[queue] == nil then known_queues[queue] = total > count end
    arrival_counts[place], arrival_counts[queue] = nil, nil
  end
end

-- Add ended attempts of a slot, unless it is too old.
local function add_ended(queue, slot, count, busy)
  if slot < math.floor(now / SLOT) - SLOTS or count == 0 then return end
  add_count(queue, slot, 'o', count)
  if busy > 0 then add_count(queue, slot, 'r', busy) end
end

core.store_arrivals, core.add_ended, core.SLOT, core.SLOTS = store_arrivals, add_ended, SLOT, SLOTS
