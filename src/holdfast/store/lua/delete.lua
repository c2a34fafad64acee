-- delete: remove ended jobs, with all that belongs to them.
--
--   args.ids     up to 1,000
--
-- Returns an answer per id: OK, NOTFOUND, NEWER, DAMAGED, STATE if it has not ended, or BLOCKED if other jobs wait for it.

local event = core.event
local AWAITED, FINAL, UNIQUE, has, load_job = core.AWAITED, core.FINAL, core.UNIQUE, core.has, core.load_job
local free_key = core.free_key
local erase = core.erase
local action, verb_on_each = core.action, core.verb_on_each

function action.delete(id)
  local job, fault = load_job(id)
  if not job then return fault end
  if not FINAL[job.state] then return 'STATE' end
  if has(job.flags, AWAITED) and redis.call('EXISTS', key.dependents(id)) == 1 then return 'BLOCKED' end
  if has(job.flags, UNIQUE) then free_key(job, 'qpk') end
  erase(job, key.blob('p', id), key.blob('r', id))
  event('deleted', id)
  return 'OK'
end

verb_on_each('delete', { 'allow-oom' })
