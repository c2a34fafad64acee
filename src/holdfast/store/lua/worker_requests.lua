-- worker_requests: send a request to a worker's inbox, and the worker's response back.
--
--   request(kind, worker or id, inbox)   kind: 'drain' (a worker: claim no more, and exit when all jobs have ended), 'stack' (the
--                                        id of a running job: return its stack). Errors: NOTFOUND, NEWER, DAMAGED, NOWORKER,
--                                        STATE if the job is not running, INVALID. Returns the worker, and the key of the list
--                                        on which the response arrives; a drain has none, and can be repeated
--   respond(inbox), blobs                the response

local NO_EXECUTOR, check_id, check_name = core.NO_EXECUTOR, core.check_id, core.check_name
local check_worker, current_attempt, refuse = core.check_worker, core.current_attempt, core.refuse
local register, require_job, send_message = core.register, core.require_job, core.send_message
local truncate, worker_of = core.truncate, core.worker_of

local MAX_RESPONSE = 262144
local RESPONSE_TTL = 60000 -- milliseconds

local function find_worker(args)
  if args.kind == 'drain' then
    if not redis.call('ZSCORE', key.workers(), check_worker(args.worker)) then
      refuse('NOWORKER', 'worker ' .. args.worker .. ' does not exist; `holdfast workers` lists them')
    end
    return args.worker, 'drain'
  end
  if args.kind ~= 'stack' then refuse('INVALID', "`kind` must be 'drain' or 'stack'") end
  local job = require_job(check_id(args.id))
  if job.state ~= 'running' then
    refuse('STATE', 'job ' .. args.id .. ' is ' .. job.state .. ': only a running job has a stack')
  end
  local run = current_attempt(job)
  if run.executor == NO_EXECUTOR then
    refuse('DAMAGED', 'the record of the last attempt of job ' .. args.id .. ' is damaged')
  end
  return worker_of(run.executor), string.format('stack %s %s %d', run.executor, job.id, job.attempt)
end

register('request', { 'allow-oom' }, function(args)
  check_name(args.inbox, 'an inbox', 40, '%w')
  local worker, message = find_worker(args)
  message = message .. ' ' .. args.inbox
  if args.kind == 'drain' and caller then message = message .. ' ' .. caller end
  send_message(worker, message)
  return { worker, key.inbox(args.inbox) }
end)

register('respond', { 'allow-oom' }, function(args, blobs)
  local list = key.inbox(check_name(args.inbox, 'an inbox', 40, '%w'))
  redis.call('RPUSH', list, truncate(blobs[2] or '', MAX_RESPONSE))
  redis.call('PEXPIRE', list, RESPONSE_TTL)
  return 1
end)
