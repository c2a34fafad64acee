-- attach: fields that other programs store with a job. note: add an entry to its history.
--
--   args.id       the job
--   args.set      attach: table of names and texts
--   args.remove   attach: names
--   args.text     note: text of up to 1,000 bytes
--   args.token    note: see call.lua
--
-- Errors: NOTFOUND, INVALID, TOOBIG. Fields are deleted with the job. `attach` returns all of them: name, text, name, text ...

local add_note, check_id, check_list, check_name = core.add_note, core.check_id, core.check_list, core.check_name
local mark_extra, refuse, register, require_job = core.mark_extra, core.refuse, core.register, core.require_job
local MAX_NOTE = constants.MAX_NOTE

local MAX_FIELDS, MAX_FIELD = 64, 4096

-- Returns fields to write: name, text, name, text ...
local function check_fields(args)
  local fields = {}
  if type(args.set or {}) ~= 'table' then refuse('INVALID', '`set` must be a table of names and texts') end
  for field, text in pairs(args.set or {}) do
    check_name(field, 'the name of a field', constants.MAX_NAME, '%w_.%-')
    if type(text) ~= 'string' then refuse('INVALID', 'field ' .. field .. ' must be text') end
    if #text > MAX_FIELD then
      refuse('TOOBIG', string.format('field %s is %d bytes (limit %d)', field, #text, MAX_FIELD))
    end
    fields[#fields + 1], fields[#fields + 2] = field, text
  end
  return fields
end

local function check_number(id, fields, removed)
  local names, count = {}, 0
  for _, field in ipairs(redis.call('HKEYS', key.fields(id))) do names[field] = true end
  for place = 1, #fields, 2 do names[fields[place]] = true end
  for _, field in ipairs(removed) do names[field] = nil end
  for _ in pairs(names) do count = count + 1 end
  if count > MAX_FIELDS then
    refuse('TOOBIG', string.format('job %s would have %d fields (limit %d)', id, count, MAX_FIELDS))
  end
end

register('attach', {}, function(args)
  local job, fields, removed = require_job(check_id(args.id)), check_fields(args), check_list(args.remove or {}, 'remove', 0)
  local id = job.id
  for _, field in ipairs(removed) do check_name(field, 'the name of a field', constants.MAX_NAME, '%w_.%-') end
  check_number(id, fields, removed)
  if #fields > 0 then
    mark_extra(job)
    redis.call('HSET', key.fields(id), unpack(fields))
  end
  if #removed > 0 then redis.call('HDEL', key.fields(id), unpack(removed)) end
  return redis.call('HGETALL', key.fields(id))
end)

register('note', {}, function(args)
  if type(args.text) ~= 'string' or args.text == '' then refuse('INVALID', 'a note must be text, and not empty') end
  if #args.text > MAX_NOTE then
    refuse('TOOBIG', string.format('the note is %d bytes (limit %d)', #args.text, MAX_NOTE))
  end
  add_note(require_job(check_id(args.id)), 'N', args.text)
  return 'OK'
end)
