-- fail: end jobs as failed; workers stop those that are running.
--
--   args.ids        up to 1,000
--   args.group      the failure group ('operator')
--   args.reason     text
--   args.token      see call.lua
--
-- Errors: INVALID. Returns an answer per id: failed, NOTFOUND, NEWER, DAMAGED, or STATE if it has ended.

local action, add_note, check_action, check_name = core.action, core.add_note, core.check_action, core.check_name
local check_reason, fail_job, note_wait = core.check_reason, core.fail_job, core.note_wait
local register_action = core.register_action
local stop_attempt, unless_final = core.stop_attempt, core.unless_final

function check_action.fail(args)
  check_reason(args)
  if args.group then check_name(args.group, 'the group of a failure', constants.MAX_NAME, '%w_.%-') end
end

action.fail = unless_final(function(job, args, waiters)
  local fields = job.state == 'running' and stop_attempt(job, 'E', args.reason) or {}
  note_wait(job)
  add_note(job, 'F', args.reason)
  fail_job(job, args.group or 'operator', 'P', waiters, fields)
  return 'failed'
end)

register_action('fail', { 'allow-oom' })
