-- release: requeue running jobs without a charge; their workers stop them.
--
--   args.ids        up to 1,000
--   args.delay      milliseconds until the job is due again
--   args.reason     text
--   args.token      see call.lua
--
-- Errors: INVALID. Returns an answer per id: the job's new state, NOTFOUND, NEWER, DAMAGED, or STATE if it is not running.

local action, add_note, check_action, check_integer = core.action, core.add_note, core.check_action, core.check_integer
local check_reason, emit, register_action, requeue = core.check_reason, core.emit, core.register_action, core.requeue
local stop_attempt, unless_final, wake_later = core.stop_attempt, core.unless_final, core.wake_later
local MAX_DURATION = constants.MAX_DURATION

function check_action.release(args)
  check_reason(args)
  check_integer(args.delay or 0, 'the delay', 0, MAX_DURATION)
end

action.release = unless_final(function(job, args)
  if job.state ~= 'running' then return 'STATE' end
  add_note(job, 'L', args.reason)
  emit('released', job)
  requeue(job, args.delay or 0, stop_attempt(job, 'R', args.reason))
  wake_later(job.queue)
  return job.state
end)

register_action('release', { 'allow-oom' })
