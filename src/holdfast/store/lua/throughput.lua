-- throughput: arrivals and finished attempts of each queue in the last minutes, for autoscaling.
--
-- One hash per queue: a letter and the number of a time slot (i: jobs that became claimable; o: attempts that ended; r: their
-- total milliseconds). `flush` adds the counts of a call, one command per letter and queue. A queue that already has counts
-- in the current slot is known to be registered.

local SLOT, SLOTS = 15000, 20

-- Drop old slots when a new one begins.
local function drop_old_slots(queue, first)
  local old = {}
  for _, field in ipairs(redis.call('HKEYS', key.load(queue))) do
    if (tonumber(string.sub(field, 2)) or 0) < first then old[#old + 1] = field end
  end
  if #old > 0 then redis.call('HDEL', key.load(queue), unpack(old)) end
  redis.call('PEXPIRE', key.load(queue), SLOT * (SLOTS + 2))
end

local named = {} -- letter -> name of its field in the slot `of`

local function add_count(queue, slot, letter, count)
  if named.of ~= slot then named = { of = slot } end
  local field = named[letter]
  if not field then
    field = letter .. string.format('%.0f', slot)
    named[letter] = field
  end
  local total = redis.pcall('HINCRBY', key.load(queue), field, count)
  if type(total) ~= 'number' then return redis.call('DEL', key.load(queue)) end -- damaged: start over
  if known_queues[queue] == nil then known_queues[queue] = total > count end
  if total == count then drop_old_slots(queue, slot - SLOTS) end
end

local function store_throughput()
  for place = 1, #throughput_counts do
    local queue = throughput_counts[place]
    for letter, count in pairs(throughput_counts[queue]) do
      if count > 0 then add_count(queue, math.floor(now / SLOT), letter, count) end
    end
    throughput_counts[place], throughput_counts[queue] = nil, nil
  end
end

core.store_throughput, core.SLOT, core.SLOTS = store_throughput, SLOT, SLOTS
