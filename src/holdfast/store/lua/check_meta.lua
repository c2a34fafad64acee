-- check_meta: `meta`, its markers, and the settings, which have a copy to restore them from.

local check, queue_sets, set_marker = core.check, core.queue_sets, core.set_marker
local copy_config, digest_config, store_config_digest = core.copy_config, core.digest_config, core.store_config_digest
local PRIORITY_STEP, find = core.PRIORITY_STEP, check.find

-- Markers without which something would be left undone are checked at the keys that they stand for. These claim something
-- that costs each call, or that is not there.
local UNNEEDED = { paused = key.paused, undefined = key.undefined, ending = key.batches_ending, batches = key.batches,
  operations = key.operating, filling = key.filling, sets = key.sets, resolving = key.resolving, changed = key.changed }
local UNNEEDED_NAMES = { 'paused', 'undefined', 'ending', 'batches', 'operations', 'filling', 'sets', 'resolving', 'changed' }

local function check_markers()
  for _, name in ipairs(UNNEEDED_NAMES) do
    if markers[name] and not check.exists(UNNEEDED[name]()) then
      find('marker', name, name == 'sets' and queue_sets.update_markers or function() set_marker(name, nil) end)
    end
  end
end

local function check_schema()
  if not meta.new or not check.exists(key.queues(), key.batches()) then return end
  find('meta_lost', 'meta', function() check.restore_meta(0) end)
end

-- The marker has the digest of the settings as `configure` left them.
local function check_config()
  local own, copy = digest_config(key.config()), digest_config(key.config_copy())
  if own == markers.config then
    if copy ~= own then find('config_copy', 'config_copy', function() copy_config(key.config(), key.config_copy()) end) end
    return
  end
  find('config_lost', 'config', function()
    local is_restored = copy and (copy == markers.config or not own)
    if is_restored then copy_config(key.config_copy(), key.config()) end
    store_config_digest()
    queue_sets.fill_pools()
    core.read_config(markers.config)
  end)
end

-- Check what calls read first. The rest is checked key by key.
function check.meta()
  check.spend(6)
  check_schema()
  check_config()
  check_markers()
end

-- Times, and the number of arrivals: beyond `PRIORITY_STEP` it would mix priorities, and no call could count on. Without it, the time
-- is taken, as if `meta` were lost.
check.kind('meta', { type = 'hash', name = 'other', single = true, entry = function(_, name, field, value)
  if field ~= 'arrivals' and field ~= 'pulse' and field ~= 'pruned' and field ~= 'since' then return end
  if string.find(value, '^%d+$') and tonumber(value) < PRIORITY_STEP then return end
  find('damaged_value', 'meta ' .. field, function()
    redis.call('HDEL', name, field)
    if field ~= 'arrivals' then return end
    meta.arrivals = 0
    check.restore_meta(now)
  end)
end })

check.kind('config', { type = 'hash', name = 'other', single = true })
check.kind('config_copy', { type = 'hash', name = 'other', single = true })
check.kind('damaged', { type = 'any', name = 'damaged keys', ttl = 30 * core.DAY })
