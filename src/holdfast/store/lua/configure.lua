-- configure: change settings. config: list them.
--
--   args.queue   the queue (default: the global settings)
--   args.set     table of names and values
--   args.reset   names to reset to their defaults
--
-- Errors: INVALID. Both return the effective settings: name, value, default, min, max, unit ('ms' or ''), 1 if queues may override
-- it, source (default, global, queue), and description.

local SETTINGS, check_integer, check_list = core.SETTINGS, core.check_integer, core.check_list
local check_queue, emit_about, publish_events = core.check_queue, core.emit_about, core.publish_events
local read_config, refuse, register, setting = core.read_config, core.refuse, core.register, core.setting
local setting_source, store_config_digest = core.setting_source, core.store_config_digest

local MAX_SETTINGS = 1000 -- of all queues together

local function setting_row(wanted)
  for _, row in ipairs(SETTINGS) do
    if row[1] == wanted then return row end
  end
  local names = {}
  for place, row in ipairs(SETTINGS) do names[place] = row[1] end
  refuse('INVALID', string.format('unknown setting %s; expected one of %s', string.sub(tostring(wanted), 1, 40),
    table.concat(names, ', ')))
end

local function check_setting(name, queue)
  local row = setting_row(name)
  if queue and not row[6] then refuse('INVALID', name .. ' applies to all queues: set it without a queue') end
  return row
end

-- Returns fields to write (field, value, field, value ...) and fields to delete.
local function check_configure(args)
  local prefix, fields, gone, new = '', {}, {}, 0
  if args.queue then prefix = check_queue(args.queue) .. '/' end
  if type(args.set or {}) ~= 'table' then refuse('INVALID', '`set` must be a table of names and values') end
  for name, value in pairs(args.set or {}) do
    local row = check_setting(name, args.queue)
    check_integer(value, name, row[3], row[4])
    fields[#fields + 1], fields[#fields + 2] = prefix .. name, string.format('%.0f', value)
    new = new + 1 - redis.call('HEXISTS', key.config(), prefix .. name)
  end
  for _, name in ipairs(check_list(args.reset or {}, 'reset', 0)) do
    check_setting(name, args.queue)
    gone[#gone + 1] = prefix .. name
  end
  if new > 0 and redis.call('HLEN', key.config()) + new > MAX_SETTINGS then
    refuse('INVALID', string.format('%d settings already differ from their defaults (the limit): reset some', MAX_SETTINGS))
  end
  return fields, gone
end

local function list_settings(queue)
  local reply = {}
  for place, row in ipairs(SETTINGS) do
    local name, default, min, max, unit, per_queue, description = unpack(row)
    local source = setting_source(name, queue)
    reply[place] = { name, setting(name, queue), default, min, max, unit, per_queue and 1 or 0, source, description }
  end
  return reply
end

local function announce(queue, name, value)
  emit_about('configured', queue or '*', { 'setting', name, value }, queue)
end

register('config', { 'no-writes' }, function(args) return list_settings(args.queue and check_queue(args.queue)) end)

register('configure', { 'allow-oom' }, function(args)
  local fields, gone = check_configure(args)
  if #fields > 0 then redis.call('HSET', key.config(), unpack(fields)) end
  if #gone > 0 then redis.call('HDEL', key.config(), unpack(gone)) end
  store_config_digest()
  core.queue_sets.fill_pools() -- the concurrency may have changed
  for name, value in pairs(args.set or {}) do announce(args.queue, name, string.format('%.0f', value)) end
  for _, name in ipairs(args.reset or {}) do announce(args.queue, name, '') end
  publish_events()
  read_config(markers.config)
  return list_settings(args.queue)
end)
