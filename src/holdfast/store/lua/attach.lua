-- attach: fields that other programs store with a job. note: add an entry to its history.
--
--   args.id       the job
--   args.set      attach: table of names and texts
--   args.remove   attach: names
--   args.text     note: text of up to 1,000 bytes
--   args.token    note: see call.lua
--
-- Errors: NOTFOUND, INVALID, TOOBIG. Fields are deleted with the job. `attach` returns all of them: name, text, name, text ...

local add_note, check_id, check_list = core.add_note, core.check_id, core.check_list
local own_fields, refuse, register, require_job = core.own_fields, core.refuse, core.register, core.require_job
local MAX_NOTE = constants.MAX_NOTE

register('attach', {}, function(args)
  local job, list = require_job(check_id(args.id)), own_fields.check(args.set or {}, 'set')
  local removed = own_fields.check_names(check_list(args.remove or {}, 'remove', 0))
  own_fields.check_number(job.id, list, removed)
  return own_fields.change(job, list, removed)
end)

register('note', {}, function(args)
  if type(args.text) ~= 'string' or args.text == '' then refuse('INVALID', 'a note must be text, and not empty') end
  if #args.text > MAX_NOTE then
    refuse('TOOBIG', string.format('the note is %d bytes (limit %d)', #args.text, MAX_NOTE))
  end
  add_note(require_job(check_id(args.id)), 'N', args.text)
  return 'OK'
end)
