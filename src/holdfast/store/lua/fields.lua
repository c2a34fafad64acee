-- fields: names and texts that programs store with a job: at its enqueue, by `attach`, or from inside of it by `save`.

local check_name, mark_extra, refuse = core.check_name, core.mark_extra, core.refuse
local MAX_FIELD, MAX_FIELDS, MAX_NAME = constants.MAX_FIELD, constants.MAX_FIELDS, constants.MAX_NAME

local own_fields = {}

local function check_field_name(name) return check_name(name, 'the name of a field', MAX_NAME, '%w_.%-') end

-- Check a table of names and texts. Returns them as a list (name, text, name, text ...), and their size.
function own_fields.check(set, what)
  local list, bytes = {}, 0
  if type(set) ~= 'table' then refuse('INVALID', '`' .. what .. '` must be a table of names and texts') end
  for name, text in pairs(set) do
    check_field_name(name)
    if type(text) ~= 'string' then refuse('INVALID', 'field ' .. name .. ' must be text') end
    if #text > MAX_FIELD then
      refuse('TOOBIG', string.format('field %s is %d bytes (limit %d)', name, #text, MAX_FIELD))
    end
    list[#list + 1], list[#list + 2] = name, text
    bytes = bytes + #name + #text
  end
  if #list > 2 * MAX_FIELDS then
    refuse('TOOBIG', string.format('a job would have %d fields (limit %d)', #list / 2, MAX_FIELDS))
  end
  return list, bytes
end

function own_fields.check_names(names)
  for _, name in ipairs(names) do check_field_name(name) end
  return names
end

-- Check how many fields a job would have with those of `list`, and without `removed`.
function own_fields.check_number(id, list, removed)
  local names, count = {}, 0
  for _, name in ipairs(redis.call('HKEYS', key.fields(id))) do names[name] = true end
  for place = 1, #list, 2 do names[list[place]] = true end
  for _, name in ipairs(removed) do names[name] = nil end
  for _ in pairs(names) do count = count + 1 end
  if count > MAX_FIELDS then
    refuse('TOOBIG', string.format('job %s would have %d fields (limit %d)', id, count, MAX_FIELDS))
  end
end

-- Change the fields of an existing job. Returns all of them.
function own_fields.change(job, list, removed)
  local fields = key.fields(job.id)
  if #list > 0 then
    mark_extra(job)
    redis.call('HSET', fields, unpack(list))
  end
  if #removed > 0 then redis.call('HDEL', fields, unpack(removed)) end
  return redis.call('HGETALL', fields)
end

core.own_fields = own_fields
