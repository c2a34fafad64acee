-- lease: the right to run a job, how it ends, and how that is charged to the job.
--
-- A lease is a timer of a running job, and an entry in its executor's hash: job -> hold. A hold is the attempt number, then `c`
-- if cancellation was requested, then one `s` for each time the lease was spared, then `@` and its length unless that is
-- the default. A renewal extends the lease by that length: the lease plus the grace of its queue.

local AT_MOST_ONCE, AWAITED, CANCELLING, INLINE = core.AT_MOST_ONCE, core.AWAITED, core.CANCELLING, core.INLINE
local INDEXED, LETTER_OF, LIMITED = core.INDEXED, core.LETTER_OF, core.LIMITED
local NOT_KEPT, UNIQUE = core.NOT_KEPT, core.UNIQUE
local WHY_FINAL = core.WHY_FINAL
local attempt_field, collect = core.attempt_field, core.collect
local current_attempt, decimal, delete_job, emit = core.current_attempt, core.decimal, core.delete_job, core.emit
local failures, fingerprints = core.failures, core.fingerprints
local has, limits, load_scratch_job, move = core.has, core.limits, core.load_scratch_job, core.move
local notify_waiters, option, outcomes = core.notify_waiters, core.option, core.outcomes
local pack_run, permanent = core.pack_run, core.permanent
local reacquire_key, release_key, set_marker = core.reacquire_key, core.release_key, core.set_marker
local setting, to_scheduled, to_waiting, truncate = core.setting, core.to_scheduled, core.to_waiting, core.truncate
local unpack_attempt, wake_later = core.unpack_attempt, core.wake_later
local count_end, count_failure, count_retry = core.statistics.count_end, core.statistics.count_failure, core.statistics.count_retry
local DEFAULT_LEASE = constants.DEFAULT_LEASE

-- If the entry is missing or damaged, the job's record decides.
local function parse_hold(marks, job)
  local attempt, cancelling, spared, length = string.match(marks or '', '^(%d+)(c?)(s*)@?(%d*)$')
  if attempt then return tonumber(attempt), cancelling == 'c', #spared, tonumber(length) or DEFAULT_LEASE end
  if not job then return 0, false, 0, DEFAULT_LEASE end
  return job.attempt, has(job.flags, CANCELLING), 0, job.lease
end

local function pack_hold(attempt, cancelling, spared, length)
  if not cancelling and spared == 0 and length == DEFAULT_LEASE then return decimal[attempt] end
  return decimal[attempt] .. (cancelling and 'c' or '') .. string.rep('s', spared)
    .. (length == DEFAULT_LEASE and '' or string.format('@%d', length))
end

-- When the lease of a running job was last renewed: a renewal extends it by its length, so nothing needs to be recorded. 0 if
-- that is unknown, as the lease was spared since. `timer`: when it ends.
local function last_heartbeat(job, timer, marks)
  if not timer then return 0 end
  local _, _, spared = parse_hold(marks, job)
  return spared == 0 and math.max(0, timer - job.lease) or 0
end

-- Whether the lease of a job has ended, and no call has requeued the job yet: its worker is dead, hangs, or is cut off.
local function is_stalled(job, timer)
  if job.state ~= 'running' then return false end
  timer = timer or tonumber(redis.call('ZSCORE', key.timers, job.id) or '')
  return timer ~= nil and timer <= now
end

-- Load the job of an attempt that holds the lease: (job, attempt, executor) must match a running job. Ids can be
-- reused, and attempt numbers then start over, so `created` must match too if given. Returns the job, its attempt
-- record, and its waiters. Otherwise nil, the attempt record if the attempt was this executor's, nil, and why the job
-- cannot be read.
local function load_held(executor, id, attempt, created)
  local job, packed, waiters = load_scratch_job(id, attempt_field[attempt], 'w')
  if not job then return nil, nil, nil, packed end
  local run = unpack_attempt(packed)
  if not run or run.executor ~= executor or (created and created ~= job.created) then return nil end
  if job.state == 'running' and job.attempt == attempt then return job, run, waiters or '' end
  return nil, run
end

-- End the attempt of a running job. Returns the fields to write with its move. `item`: see finish.lua.
local function end_attempt(job, run, outcome, reason, item)
  local queue, ran = job.queue, now > run.claimed and now - run.claimed or 0
  collect(held_removals, key.held(run.executor), job.id)
  count_end(job, outcome, ran)
  if job.flags > 0 and has(job.flags, LIMITED) then limits.release_slots(job) end
  if setting('concurrency', queue) > 0 then wake_later(queue) end
  local fields = { attempt_field[job.attempt], pack_run(run, item or {}, ran, outcome), nil, nil } -- room for more
  if reason and reason ~= '' then
    fields[3], fields[4] = 'o' .. decimal[job.attempt], truncate(reason, INLINE)
  end
  return fields
end

-- Whether a job with `keep` false is deleted when it ends. Failed jobs stay, and so do cancelled ones with dependents:
-- they may be retried.

local function is_deleted_at_end(job, state)
  if not has(job.flags, NOT_KEPT) or state == 'failed' then return false end
  return state == 'succeeded' or not has(job.flags, AWAITED) or redis.call('EXISTS', key.dependents(job.id)) == 0
end

-- Who requested to cancel a running job, and why.
local function read_request(job)
  return { string.match(redis.call('HGET', key.job(job.id), 'q') or '', '^(%S*) ?(.*)$') }
end

-- Move a job to a final state, and notify waiters. `detail`: of the event.
local function finish_job(job, state, waiters, fields, detail)
  if state == 'cancelled' and has(job.flags, CANCELLING) then detail = read_request(job) end
  local goes = job.flags > 0 and is_deleted_at_end(job, state)
  waiters = waiters or redis.call('HGET', key.job(job.id), 'w')
  if job.state == 'blocked' then core.unlink(job) end
  if job.flags > 0 then
    if has(job.flags, UNIQUE) then release_key(job, goes and 'qpk' or 'qp') end
    core.drop_deadline(job)
    if has(job.flags, LIMITED) then limits.leave(job) end
    if has(job.flags, AWAITED) then to_resolve[#to_resolve + 1] = { job.id, LETTER_OF[state], '-inf' } end
    if has(job.flags, INDEXED) then core.batches.on_end(job, state) end
    job.flags = permanent(job.flags)
  end
  if goes then
    emit(state, job, detail)
    delete_job(job, key.blob('p', job.id), key.blob('r', job.id))
    outcomes.remember(job, state)
  else
    move(job, state, now, nil, unpack(fields or {}))
    emit(state, job, detail)
  end
  job.state = state -- for callers, even if the job was deleted
  if waiters and waiters ~= '' then notify_waiters(job, waiters) end
end

-- `group` is the failure group; `why` the failure is final is a letter of WHY_FINAL. `fingerprint` is that of the error, if
-- there was one.
local function fail_job(job, group, why, waiters, fields, fingerprint)
  job.group = failures.clean_group(group)
  job.fingerprint = fingerprint or fingerprints.count(job, {}, job.group)
  for _, part in ipairs({ 'g', job.group, 'y', why, 'v', job.fingerprint }) do fields[#fields + 1] = part end
  count_failure(job)
  finish_job(job, 'failed', waiters, fields, { job.group, WHY_FINAL[why] })
end

-- Requeue a job after an attempt that did not end it: at once in its old position, or after a delay. An at-most-once
-- job is requeued only if it certainly did not start. Then a job that owned a unique key until its start gets it again.
local function requeue(job, delay, fields, unstarted)
  if has(job.flags, CANCELLING) then return finish_job(job, 'cancelled', nil, fields) end
  if has(job.flags, AT_MOST_ONCE) and not unstarted then return fail_job(job, 'interrupted', 'O', nil, fields) end
  if has(job.flags, UNIQUE) and unstarted then reacquire_key(job) end
  if delay > 0 then to_scheduled(job, now + delay, fields) else to_waiting(job, fields) end
end

local function is_exhausted(job, count, max)
  return (count > max or has(job.flags, AT_MOST_ONCE)) and not has(job.flags, CANCELLING)
end

local function exhausted_reason(job) return has(job.flags, AT_MOST_ONCE) and 'O' or 'E' end

-- Requeue a job after an attempt that counts as a failed try.
local function requeue_charged(job, fields)
  if not has(job.flags, CANCELLING) then count_retry(job) end
  requeue(job, 0, fields)
end

-- The attempt's process died.
local function charge_crash(job, waiters, fields, fingerprint)
  job.crashes_used, job.misses = job.crashes_used + 1, 0
  emit('crashed', job)
  if is_exhausted(job, job.crashes_used, option(job, 'crashes')) then
    return fail_job(job, 'crashed', exhausted_reason(job), waiters, fields, fingerprint)
  end
  requeue_charged(job, fields)
end

-- The attempt lost its lease.
local function charge_lost(job, run, reason)
  local fields = end_attempt(job, run, 'L', reason)
  job.lost_used, job.misses = job.lost_used + 1, 0
  emit('lost', job)
  if is_exhausted(job, job.lost_used, option(job, 'lost')) then return fail_job(job, 'lost', exhausted_reason(job), nil, fields) end
  requeue_charged(job, fields)
end

-- Outages: when the store was unavailable to everyone, as text `end length end length ...`, longest and oldest first. A
-- later outage of at least the same length supersedes an earlier one.
local outages = { MAX_SPARED = 3, MAX = 50 }

function outages.parse()
  local list = {}
  for ended, length in string.gmatch(markers.outages or '', '(%d+) (%d+)') do
    list[#list + 1] = { ended = tonumber(ended), length = tonumber(length) }
  end
  return list
end

function outages.store(list)
  local parts = {}
  for _, outage in ipairs(list) do parts[#parts + 1] = string.format('%.0f %.0f', outage.ended, outage.length) end
  set_marker('outages', parts[1] and table.concat(parts, ' '))
end

-- An outage extends leases shorter than twice its length, until one lease after its end: it no longer matters after
-- twice its length.
function outages.add(length)
  local list = {}
  for _, outage in ipairs(outages.parse()) do
    if outage.length > length and outage.ended + 2 * outage.length > now then list[#list + 1] = outage end
  end
  if #list == outages.MAX then list[#list].ended = now else list[#list + 1] = { ended = now, length = length } end
  outages.store(list)
end

-- After an outage longer than half a lease, the lease does not expire before its holder had a whole lease to renew it.
-- The number of times is limited: otherwise, where calls are rare, an abandoned lease would never expire.
function outages.spare_lease(job, run)
  local until_then = 0
  for _, outage in ipairs(outages.parse()) do
    if outage.length * 2 > job.lease then until_then = outage.ended + job.lease end
  end
  if until_then <= now then return false end
  local attempt, cancelling, spared, length = parse_hold(redis.call('HGET', key.held(run.executor), job.id), job)
  if spared >= outages.MAX_SPARED then return false end
  redis.call('ZADD', key.timers, until_then, job.id)
  redis.call('HSET', key.held(run.executor), job.id, pack_hold(attempt, cancelling, spared + 1, length))
  return true
end

local function expire_lease(job)
  local run = current_attempt(job)
  if not outages.spare_lease(job, run) then charge_lost(job, run, 'lease ended') end
end

core.parse_hold, core.pack_hold, core.load_held, core.end_attempt = parse_hold, pack_hold, load_held, end_attempt
core.finish_job, core.fail_job, core.requeue, core.charge_crash = finish_job, fail_job, requeue, charge_crash
core.charge_lost, core.outages, core.expire_lease = charge_lost, outages, expire_lease
core.last_heartbeat, core.is_stalled = last_heartbeat, is_stalled
