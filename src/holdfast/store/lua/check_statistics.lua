-- check_statistics: statistics expire, and can be read. What is damaged starts over.

local check, folding, statistics = core.check, core.folding, core.statistics
local DAY = core.DAY
local find, removal = check.find, check.removal

local MONTH, DAYS = 30 * DAY, 8 * DAY
local DAY_SIZE, CELL_SIZE, BUCKET_SIZE = folding.SUMMARY_SIZE, folding.CELL_SIZE, folding.BUCKET_SIZE

local function field_kind(family, ttl, is_right)
  check.kind(family, { type = 'hash', name = 'statistics', ttl = ttl, entry = function(rest, name, field, value)
    if is_right(field, value) then return end
    find('damaged_value', family .. ':' .. rest .. ' ' .. field, removal('HDEL', name, field))
  end })
end

local function is_cell(field, value)
  if string.sub(field, 1, 1) == 'i' then return string.find(value, '^%d+$') end
  return #value > 0 and #value <= CELL_SIZE
end

field_kind('sd', MONTH, function(_, value) return #value == DAY_SIZE end)
field_kind('sg', DAYS, function(_, value) return #value % BUCKET_SIZE == 0 end)
field_kind('sh', MONTH, is_cell)
field_kind('sm', DAY, is_cell)
field_kind('load', MONTH, function(field, value) return string.find(field, '^%a%d+$') and string.find(value, '^%d+$') end)

check.kind('sl', { type = 'string', name = 'statistics', ttl = MONTH, whole = function(queue, name)
  if statistics.read_lines(redis.call('GET', name), nil, function() end) then return end
  find('damaged_value', 'sl:' .. queue, check.deletion(name))
end })
