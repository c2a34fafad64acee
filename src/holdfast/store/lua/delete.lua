-- delete: delete ended jobs and everything that belongs to them.
--
--   args.ids     up to 1,000
--
-- Errors: INVALID. Returns an answer per id: OK, NOTFOUND, NEWER, DAMAGED, STATE if it has not ended, BLOCKED if it has
-- dependents.

local AWAITED, FINAL, UNIQUE, action, delete_job = core.AWAITED, core.FINAL, core.UNIQUE, core.action, core.delete_job
local emit, has, load_job, register_action = core.emit, core.has, core.load_job, core.register_action
local outcomes, release_key = core.outcomes, core.release_key

function action.delete(id)
  local job, fault = load_job(id)
  if not job then return fault end
  if not FINAL[job.state] then return 'STATE' end
  if has(job.flags, AWAITED) and redis.call('EXISTS', key.dependents(id)) == 1 then return 'BLOCKED' end
  if has(job.flags, UNIQUE) then release_key(job, 'qpk') end
  outcomes.remember(job, job.state)
  emit('deleted', job)
  delete_job(job, key.blob('p', id), key.blob('r', id))
  return 'OK'
end

register_action('delete', { 'allow-oom' })
