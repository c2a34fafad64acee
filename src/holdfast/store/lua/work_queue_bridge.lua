-- work_queue_bridge: the items of a redis-work-queue as jobs of a queue; see work_queue.lua for its keys.
--
-- A worker claims items and stores each as a job, in one call. A note connects the two until both have ended:
--
--   prefix and item -> job and digest of the data      job -> prefix and item
--
-- The session of an item's lease is its job, so any worker can renew and complete it. Only a job that has ended can be
-- deleted, so one that is gone has ended, too.
--
--   work_queue_bridge(queue, batch, slots, executors, lease), blobs: prefix, ids for new jobs, separated by spaces
--     claim items while fewer than `slots` jobs of the queue wait for a slot or a limit, or run on one of these executors. The
--     executors are asked in the store: a worker learns late what they claim. `batch` is as in enqueue.lua, without ids.
--     Returns how many jobs were stored, how many items of existing jobs were leased again, how many entries the queue
--     has left, 1 if another call may claim more at once, then id, size, id, size ... of items that are too big for a job:
--     they go to the left end of the queue, for other programs
--   work_queue_settle(queue, lease, jobs or cursor), blob: prefix
--     for each of these jobs, or of a part of all: complete the item of a job that has ended, and renew the lease of any
--     other. A job that waits for an attempt is cancelled if another program has completed its item. Returns the next cursor
--     ('0' at the end), then how many items were completed, how many renewed, and how many jobs cancelled. With long lists,
--     which have to be searched, one call completes fewer items; the others wait for the next one
--
-- Errors: INVALID; TOOBIG; those of enqueue.

local FINAL, action, check_batch, check_ids = core.FINAL, core.action, core.check_batch, core.check_ids
local check_integer, check_lease, check_queue, check_id = core.check_integer, core.check_lease, core.check_queue, core.check_id
local each_claimable, end_item, enqueue, flush = core.each_claimable, core.end_item, core.enqueue, core.flush
local holder_of, is_in, load_data, load_job = core.holder_of, core.is_in, core.load_data, core.load_job
local check_executor, check_list = core.check_executor, core.check_list
local publish_events, put_back, refuse, register = core.publish_events, core.put_back, core.refuse, core.register
local max_searches, set_lease, work_queue = core.max_searches, core.set_lease, core.work_queue
local MAX_BATCH, MAX_PAYLOAD = constants.MAX_BATCH, constants.MAX_PAYLOAD

local MAX_BYTES = 33554432 -- of the payloads that one call stores
local PAGE = 100 -- notes
local ITEM, JOB = 'i', 'j'
local CANCEL = { reason = 'another program has completed its item' }

-- An item with its prefix: a queue may have jobs of several, as after a deployment that changes it.
local function full_name(own, item) return string.format('%d:', #own.prefix) .. own.prefix .. item end

local function split_name(name)
  local length, rest = string.match(name, '^(%d+):(.*)$')
  if length then return string.sub(rest, 1, tonumber(length)), string.sub(rest, tonumber(length) + 1) end
end

-- The job of an item, and the digest of its data.
local function load_note(notes, own, item)
  local note = redis.call('HGET', notes, ITEM .. full_name(own, item))
  if note then return string.match(note, '^(%S+) (%x+)$') end
end

local function add_note(notes, own, item, job, digest)
  local name = full_name(own, item)
  redis.call('HSET', notes, ITEM .. name, job .. ' ' .. digest, JOB .. job, name)
end

local function remove_note(notes, own, item, job) redis.call('HDEL', notes, ITEM .. full_name(own, item), JOB .. job) end

-- Whether a job has ended. One that cannot be read has not, as far as anyone can tell.
local function has_ended(id)
  local job, fault = load_job(id)
  if not job then return fault == 'NOTFOUND' end
  return FINAL[job.state]
end

-- Claim the item at the right end of the queue for the job that has it. Returns false if it needs a new job. It is another
-- item if its data differs; and it may be one if its job has ended, and has lost the lease.
local function adopt(own, notes, item, data, lease)
  local job, digest = load_note(notes, own, item)
  if not job then return false end
  if digest ~= redis.sha1hex(data) or has_ended(job) then
    remove_note(notes, own, item, job)
    return false
  end
  redis.call('LMOVE', own.queue, own.processing, 'RIGHT', 'LEFT')
  set_lease(own, item, job, lease)
  return true
end

local function split_ids(text)
  local ids = {}
  for id in string.gmatch(type(text) == 'string' and text or '', '%S+') do ids[#ids + 1] = check_id(id) end
  if #ids < 1 or #ids > MAX_BATCH then refuse('INVALID', string.format('expected 1 to %d ids for new jobs', MAX_BATCH)) end
  return ids
end

local function check_bridge(args, ids)
  check_queue(args.queue)
  if type(args.batch) ~= 'table' then refuse('INVALID', '`batch` must be a table') end
  if args.batch.queue ~= args.queue or args.batch.keep == false or args.batch.unique or args.batch.after then
    refuse('INVALID', 'the jobs of a bridge are of its own queue, and have no options `keep`, `unique` and `after`')
  end
  args.batch.ids = ids
  check_batch(args.batch)
end

-- How many jobs of a queue an executor runs; if it holds very many, of all queues.
local function count_running(executor, queue)
  local held = key.held(check_executor(executor))
  local count = redis.call('HLEN', held)
  if count > MAX_BATCH then return count end
  count = 0
  for _, id in ipairs(redis.call('HKEYS', held)) do
    local job = load_job(id)
    if job and job.queue == queue then count = count + 1 end
  end
  return count
end

-- How many more jobs of a queue could start on the executors of a worker.
local function free_slots(args)
  local index = key.index[args.queue]
  local free = check_integer(args.slots, '`slots`', 0, 1000000000) - redis.call('ZCARD', index.waiting)
    - redis.call('ZCARD', index.throttled)
  for _, executor in ipairs(check_list(args.executors, 'executors', 0)) do
    free = free - count_running(executor, args.queue)
  end
  return free
end

-- Store the jobs of claimed items, all together. Their notes come last: a note whose job is missing counts as one of a job
-- that has ended.
local function store_jobs(args, ids, own, notes, claimed)
  if #claimed == 0 then return end
  local blobs = { '', '' }
  args.batch.ids = {}
  for place, one in ipairs(claimed) do args.batch.ids[place], blobs[place + 2] = ids[place], one.data end
  enqueue({ batches = { args.batch }, on_exists = 'return' }, blobs)
  for place, one in ipairs(claimed) do add_note(notes, own, one.item, ids[place], redis.sha1hex(one.data)) end
end

register('work_queue_bridge', {}, function(args, blobs)
  local own, ids, lease = work_queue(blobs[2]), split_ids(blobs[3]), check_lease(args.lease)
  check_bridge(args, ids)
  local room, skipped = free_slots(args), 0
  local notes, adopted, claimed, big, bytes = key.bridged(args.queue), 0, {}, {}, 0
  local most, left = math.min(room, #ids), redis.call('LLEN', own.queue)
  if most > 0 and redis.call('SISMEMBER', key.paused(), args.queue) == 0 then
    skipped = each_claimable(own, function(item, data)
      left = left - 1 -- so that each item that is too big is met once
      if #data > MAX_PAYLOAD then
        big[#big + 1], big[#big + 2] = item, #data
        redis.call('LMOVE', own.queue, own.queue, 'RIGHT', 'LEFT')
        return left > 0
      end
      if adopt(own, notes, item, data, lease) then
        adopted = adopted + 1
        return left > 0
      end
      bytes = bytes + #data
      if #claimed > 0 and bytes > MAX_BYTES then return false end
      claimed[#claimed + 1] = { item = item, data = data }
      redis.call('LMOVE', own.queue, own.processing, 'RIGHT', 'LEFT')
      set_lease(own, item, ids[#claimed], lease)
      return #claimed < most and left > 0
    end)
  end
  store_jobs(args, ids, own, notes, claimed)
  publish_events()
  local may_go_on = #claimed < room and #claimed + adopted + skipped > 0
  return { #claimed, adopted, redis.call('LLEN', own.queue), may_go_on and 1 or 0, unpack(big) }
end)

-- Remove what a job has left of an item that another program has ended. There may be a new item with the same id, which
-- nobody could claim before the lease expires.
local function clear_lease(own, item, job)
  if holder_of(own, item, job) ~= job then return end
  if redis.call('EXISTS', own.item .. item) == 1 and is_in(own.processing, item) then return put_back(own, item) end
  redis.call('DEL', own.lease .. item, own.session .. item)
  redis.call('LREM', own.processing, 0, item)
end

-- Whether another program has ended the item of a job: this deletes one of its two leases. An item with that id is another.
local function was_ended(own, item, job)
  local one, other = unpack(redis.call('MGET', own.lease .. item, own.session .. item))
  return one == job and not other or other == job and not one
end

-- Complete the item of a job that has ended. If it is in neither list, another program is moving or completing it: the next
-- call decides. If it is in the queue, and the lease has expired, it may have been ended and put again: it runs once more.
-- Returns whether it is settled, and what was done.
local function complete(own, item, job, digest)
  local data = load_data(own, item)
  if not data or redis.sha1hex(data) ~= digest or was_ended(own, item, job) then
    clear_lease(own, item, job)
    return true
  end
  local holder = holder_of(own, item, job)
  if holder and holder ~= job then return false end
  if not is_in(own.processing, item) then
    if not holder then return is_in(own.queue, item) end
    if redis.call('LREM', own.queue, 0, item) == 0 then return false end
  end
  end_item(own, item)
  return true, 'completed'
end

local function is_running(id)
  local job = load_job(id)
  return job and job.state == 'running'
end

-- Renew the lease of an item, or drop a job whose item has ended. A job that runs already runs on, but not for an item that
-- was put under the same id meanwhile.
local function keep(own, item, job, lease)
  if redis.call('EXISTS', own.item .. item) == 0 then
    clear_lease(own, item, job)
    local open = load_job(job)
    if not open or open.state == 'running' then return true end
    action.cancel(job, CANCEL)
    flush()
    return true, 'cancelled'
  end
  if was_ended(own, item, job) and is_running(job) then
    clear_lease(own, item, job)
    return true
  end
  local holder = holder_of(own, item, job)
  if holder == job or not holder and is_in(own.processing, item) then
    set_lease(own, item, job, lease)
    return false, 'renewed'
  end
  return false
end

local function settle(own, notes, item, job, lease)
  local current, digest = load_note(notes, own, item)
  if current ~= job then return redis.call('HDEL', notes, JOB .. job) and nil end -- the hash is damaged
  local settled, what
  if has_ended(job) then
    settled, what = complete(own, item, job, digest)
  else
    settled, what = keep(own, item, job, lease)
  end
  if settled then remove_note(notes, own, item, job) end
  return what
end

-- Whether an item only needs another lease: nothing has to be looked for in the lists.
local function is_quick(own, item, job)
  if has_ended(job) or redis.call('EXISTS', own.item .. item) == 0 then return false end
  local one, other = unpack(redis.call('MGET', own.lease .. item, own.session .. item))
  return one == job and other == job
end

-- A part of the jobs with notes, and the next cursor.
local function next_jobs(args, notes)
  if args.jobs then return check_ids(args.jobs), '0' end
  if type(args.cursor) ~= 'string' or not string.find(args.cursor, '^%d+$') then
    refuse('INVALID', '`cursor` must be a number as text, 0 at the beginning')
  end
  local found, jobs = redis.call('HSCAN', notes, args.cursor, 'MATCH', JOB .. '*', 'COUNT', PAGE), {}
  for place = 1, #found[2], 2 do jobs[#jobs + 1] = string.sub(found[2][place], 2) end
  return jobs, found[1]
end

register('work_queue_settle', { 'allow-oom' }, function(args, blobs)
  local own, notes, lease = work_queue(blobs[2]), key.bridged(check_queue(args.queue)), check_lease(args.lease)
  local jobs, cursor = next_jobs(args, notes)
  local count, left = { completed = 0, renewed = 0, cancelled = 0 }, max_searches(own)
  for _, job in ipairs(jobs) do
    local prefix, item = split_name(redis.call('HGET', notes, JOB .. job) or '')
    if prefix and prefix ~= own.prefix then own = work_queue(prefix) end
    local quick = item and is_quick(own, item, job)
    local what = item and (quick or left > 0) and settle(own, notes, item, job, lease)
    if not quick then left = left - 1 end -- the others wait for the next call
    if what then count[what] = count[what] + 1 end
  end
  publish_events()
  return { cursor, count.completed, count.renewed, count.cancelled }
end)
