-- ask: have a worker do something, by a word in its inbox, and tell whoever asks what came of it.
--
--   ask(word, worker or id, inbox)   word: 'drain' (claim no more, and end when all jobs have; a worker), 'stack' (what a
--                                    running job does just now; an id). Refuses NOTFOUND, NOWORKER, STATE if the job does not run.
--                                    Returns the worker, and the key of the list on which the answer comes; a drain has none,
--                                    and may be said again
--   answer(inbox), blobs             the worker's answer

local job_id, name, refuse, verb, worker_name = core.job_id, core.name, core.refuse, core.verb, core.worker_name
local worker_of = core.worker_of
local NOBODY, current_run, cut, require_job = core.NOBODY, core.current_run, core.cut, core.require_job
local tell = core.tell

local MOST_ANSWER = 262144
local ANSWERED = 60000 -- milliseconds for which an answer is kept

local function worker_to_ask(args)
  if args.kind == 'drain' then
    if not redis.call('ZSCORE', key.workers(), worker_name(args.worker)) then
      refuse('NOWORKER', 'there is no worker ' .. args.worker .. '; holdfast workers lists them')
    end
    return args.worker, 'drain'
  end
  if args.kind ~= 'stack' then refuse('INVALID', "`kind` must be 'drain' or 'stack'") end
  local job = require_job(job_id(args.id))
  if job.state ~= 'running' then refuse('STATE', 'job ' .. args.id .. ' is ' .. job.state .. ': only a running one can be looked into') end
  local run = current_run(job)
  if run.executor == NOBODY then refuse('DAMAGED', 'the record of the last attempt of job ' .. args.id .. ' is damaged') end
  return worker_of(run.executor), string.format('stack %s %s %d', run.executor, job.id, job.attempt)
end

verb('request', { 'allow-oom' }, function(args)
  name(args.inbox, 'an inbox', 40, '%w')
  local worker, words = worker_to_ask(args)
  tell(worker, words .. ' ' .. args.inbox)
  return { worker, key.inbox(args.inbox) }
end)

verb('respond', { 'allow-oom' }, function(args, blobs)
  local list = key.inbox(name(args.inbox, 'an inbox', 40, '%w'))
  redis.call('RPUSH', list, cut(blobs[2] or '', MOST_ANSWER))
  redis.call('PEXPIRE', list, ANSWERED)
  return 1
end)
