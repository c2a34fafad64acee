-- lease: the right to run a job, how it ends, and what that costs the job.
--
-- A lease is a timer of a running job, and an entry in its executor's hash of held jobs: job -> marks, that is the
-- attempt's number, then `c` if the job is to be cancelled, then `s` for each time that its lease was spared, then `@` and
-- its length if that is not the usual one. A renewal prolongs it by that length: the lease and the grace of its queue.

local collect, emit, set_marker = core.collect, core.emit, core.set_marker
local setting = core.setting
local AWAITED, CANCELLING, INLINE, LETTER_OF, LIMITED = core.AWAITED, core.CANCELLING, core.INLINE, core.LETTER_OF, core.LIMITED
local AT_MOST_ONCE, UNIQUE, NOT_KEPT, attempt_field, truncate = core.AT_MOST_ONCE, core.UNIQUE, core.NOT_KEPT, core.attempt_field, core.truncate
local decimal, has, permanent, option, pack_run = core.decimal, core.has, core.permanent, core.option, core.pack_run
local current_attempt, load_scratch_job, unpack_attempt = core.current_attempt, core.load_scratch_job, core.unpack_attempt
local release_key, reacquire_key = core.release_key, core.reacquire_key
local wake_later, delete_job, move, count_throughput, to_scheduled = core.wake_later, core.delete_job, core.move, core.count_throughput, core.to_scheduled
local to_waiting = core.to_waiting
local limits = core.limits
local notify_waiters = core.notify_waiters

local MIN_LEASE, MAX_LEASE, MAX_DURATION = constants.MIN_LEASE, constants.MAX_LEASE, constants.MAX_DURATION

local DEFAULT_LEASE = constants.DEFAULT_LEASE

-- Of an entry that is missing or damaged: what the job itself says.
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

-- The job of an attempt that has the right to write, or nothing: (job, attempt, executor) must match a running job. An id
-- may be used again, and its attempts then start from 1: who says when the job was `created` is heard only about that one.
-- The second value is the attempt's record, if the attempt was this executor's; the third, who waits for the job, or why it
-- cannot be read.
local function load_held(executor, id, attempt, created)
  local job, packed, waiters = load_scratch_job(id, attempt_field[attempt], 'w')
  if not job then return nil, nil, nil, packed end
  local run = unpack_attempt(packed)
  if not run or run.executor ~= executor or (created and created ~= job.created) then return nil end
  if job.state == 'running' and job.attempt == attempt then return job, run, waiters or '' end
  return nil, run
end

-- End a running job's attempt: returns the fields to write with its move. `item`: what its executor says of it, see finish.lua.
local function end_attempt(job, run, outcome, words, item)
  local queue, ran = job.queue, now > run.claimed and now - run.claimed or 0
  collect(held_removals, key.held(run.executor), job.id)
  count_throughput(queue, 'o', 1, 'r', ran)
  if job.flags > 0 and has(job.flags, LIMITED) then limits.release_slots(job) end
  if setting('concurrency', queue) > 0 then wake_later(queue) end
  local fields = { attempt_field[job.attempt], pack_run(run, item or {}, ran, outcome), nil, nil } -- room for more
  if words and words ~= '' then
    fields[3], fields[4] = 'o' .. decimal[job.attempt], truncate(words, INLINE)
  end
  return fields
end

-- Whether a job that is not to be kept goes. One that failed does not, nor one that was cancelled and is waited for: somebody
-- may want to retry it.

local function is_deleted_at_end(job, state)
  if not has(job.flags, NOT_KEPT) or state == 'failed' then return false end
  return state == 'succeeded' or not has(job.flags, AWAITED) or redis.call('EXISTS', key.dependents(job.id)) == 0
end

-- Put a job into a final state, and say so to those who wait.
local function finish_job(job, state, waiters, fields)
  local goes = job.flags > 0 and is_deleted_at_end(job, state)
  waiters = waiters or redis.call('HGET', key.job(job.id), 'w')
  if job.state == 'blocked' then core.unlink(job) end
  if job.flags > 0 then
    if has(job.flags, UNIQUE) then release_key(job, goes and 'qpk' or 'qp') end
    core.drop_deadline(job)
    if has(job.flags, LIMITED) then limits.leave(job) end
    if has(job.flags, AWAITED) then to_resolve[#to_resolve + 1] = { job.id, LETTER_OF[state], '-inf' } end
    job.flags = permanent(job.flags)
  end
  if goes then
    delete_job(job, key.blob('p', job.id), key.blob('r', job.id))
  else
    move(job, state, now, nil, unpack(fields or {}))
  end
  job.state = state -- also of one that is gone, for those who say so
  emit(state, job.id)
  if waiters and waiters ~= '' then notify_waiters(job, waiters) end
end

-- The group is the error's own; `why` it is final is a letter of WHY_FINAL.
local function fail_job(job, group, why, waiters, fields)
  local count = #fields
  fields[count + 1], fields[count + 2], fields[count + 3], fields[count + 4] = 'g', truncate(group, INLINE), 'y', why
  finish_job(job, 'failed', waiters, fields)
end

-- A job comes back from an attempt that did not end it: at once and in its old place, or after a delay. One that is to run
-- once at most does so only if it is certain that it did not start; then one that had a key until it starts has it again.
local function requeue(job, delay, fields, unstarted)
  if has(job.flags, CANCELLING) then return finish_job(job, 'cancelled', nil, fields) end
  if has(job.flags, AT_MOST_ONCE) and not unstarted then return fail_job(job, 'interrupted', 'O', nil, fields) end
  if has(job.flags, UNIQUE) and unstarted then reacquire_key(job) end
  if delay > 0 then to_scheduled(job, now + delay, fields) else to_waiting(job, fields) end
end

local function is_exhausted(job, count, most)
  return (count > most or has(job.flags, AT_MOST_ONCE)) and not has(job.flags, CANCELLING)
end

local function exhausted_reason(job) return has(job.flags, AT_MOST_ONCE) and 'O' or 'E' end

-- The attempt's process died.
local function charge_crash(job, waiters, fields)
  job.crashes_used, job.misses = job.crashes_used + 1, 0
  emit('crashed', job.id)
  if is_exhausted(job, job.crashes_used, option(job, 'crashes')) then return fail_job(job, 'crashed', exhausted_reason(job), waiters, fields) end
  requeue(job, 0, fields)
end

-- The attempt lost its lease.
local function charge_lost(job, run, words)
  local fields = end_attempt(job, run, 'L', words)
  job.lost_used, job.misses = job.lost_used + 1, 0
  emit('lost', job.id)
  if is_exhausted(job, job.lost_used, option(job, 'lost')) then return fail_job(job, 'lost', exhausted_reason(job), nil, fields) end
  requeue(job, 0, fields)
end

-- Gaps: when the store was away for everyone; text of `end length end length ...`, the longest and oldest first. One
-- that is not longer than a later one spares nothing that the later one does not.
local outages = { MAX_SPARED = 3, MAX = 50 }

function outages.parse()
  local list = {}
  for ended, length in string.gmatch(markers.outages or '', '(%d+) (%d+)') do
    list[#list + 1] = { ended = tonumber(ended), length = tonumber(length) }
  end
  return list
end

function outages.store(list)
  local words = {}
  for _, gap in ipairs(list) do words[#words + 1] = string.format('%.0f %.0f', gap.ended, gap.length) end
  set_marker('outages', words[1] and table.concat(words, ' '))
end

-- A gap spares the leases shorter than twice its length, for one lease; so it is forgotten after twice its length.
function outages.add(length)
  local list = {}
  for _, gap in ipairs(outages.parse()) do
    if gap.length > length and gap.ended + 2 * gap.length > now then list[#list + 1] = gap end
  end
  if #list == outages.MAX then list[#list].ended = now else list[#list + 1] = { ended = now, length = length } end
  outages.store(list)
end

-- The store was away for longer than half a lease: then the lease does not end before its holder had a whole lease to
-- renew it. Spared leases are few, or one that nobody renews would never end where calls are rare.
function outages.spare_lease(job, run)
  local until_then = 0
  for _, gap in ipairs(outages.parse()) do
    if gap.length * 2 > job.lease then until_then = gap.ended + job.lease end
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

core.MIN_LEASE, core.MAX_LEASE, core.MAX_DURATION, core.parse_hold = MIN_LEASE, MAX_LEASE, MAX_DURATION, parse_hold
core.pack_hold, core.load_held, core.end_attempt, core.finish_job, core.fail_job = pack_hold, load_held, end_attempt, finish_job, fail_job
core.requeue, core.charge_crash, core.charge_lost, core.outages, core.expire_lease = requeue, charge_crash, charge_lost, outages, expire_lease
