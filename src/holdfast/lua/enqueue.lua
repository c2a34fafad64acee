-- enqueue: store jobs, all or none.
--
--   args.batches    lists of jobs that differ only in id and payload, each with
--     ids           the jobs' ids
--     queue, task   names
--     priority      -256 to 255, lower runs sooner (0)
--     delay, due    milliseconds from now, or a time; neither: at once
--     retries, crashes, lost, backoff, timeout, codec    see record.lua
--   args.exists     what to do about an id that is there: 'return' (nothing), 'error' or 'replace'
--   args.token      with 'error' and 'replace': see call.lua
--   blobs           the payloads, in order
--
-- Refuses INVALID, TOOBIG; EXISTS with exists = 'error'; STATE if a job to be replaced is running.
-- Returns the server's time, then 1 for each job that was stored, 0 for each that was there.

local MOST_PAYLOAD = LIMITS.MOST_PAYLOAD
local EXISTS = { ['return'] = true, ['error'] = true, ['replace'] = true }

local function check_batch(batch)
  queue_name(batch.queue)
  name(batch.task, 'a task', 100, '%w_.%-')
  list_of(batch.ids, 'the ids of a batch')
  optional(batch.priority, 'the priority', -256, 255)
  optional(batch.retries, 'retries', 0, 1000)
  optional(batch.crashes, 'crashes', 0, 1000)
  optional(batch.lost, 'lost', 0, 1000)
  optional(batch.backoff, 'the backoff', 0, LIMITS.LONGEST_BACKOFF)
  optional(batch.timeout, 'the timeout', 0, LONGEST_WAIT)
  optional(batch.delay, 'the delay', 0, LONGEST_WAIT)
  optional(batch.due, 'the due time', 0, now + LONGEST_WAIT)
  if not CODEC_NUMBER[batch.codec or 'json'] then refuse('INVALID', 'unknown codec ' .. tostring(batch.codec)) end
end

-- What is there of an id: nothing, 'there', or 'ours' if this very call has stored it before.
local function look_up(id, args)
  if redis.call('EXISTS', key.job(id)) == 0 then return nil end
  if not args.token then return 'there' end
  local job, last = load_job(id, 'k')
  if remembered(args.token, last) then return 'ours' end
  if args.exists == 'error' then refuse('EXISTS', 'job ' .. id .. ' exists already') end
  if job.state == 'running' then
    refuse('STATE', 'job ' .. id .. ' is running and cannot be replaced: cancel it first')
  end
  return 'there'
end

-- Check everything before anything is written: returns the number of jobs, and of each id what is there.
local function check_enqueue(args, blobs)
  local count, exists, seen = 0, {}, {}
  if not EXISTS[args.exists or 'return'] then refuse('INVALID', "`exists` must be 'return', 'error' or 'replace'") end
  if args.exists == 'error' or args.exists == 'replace' then check_token(args) else args.token = nil end
  for _, batch in ipairs(list_of(args.batches, 'batches')) do
    check_batch(batch)
    for _, id in ipairs(batch.ids) do
      count = count + 1
      if count > MOST then refuse('INVALID', string.format('more than %d jobs in one call', MOST)) end
      job_id(id)
      if seen[id] then refuse('INVALID', 'job ' .. id .. ' stands twice in one call') end
      seen[id] = true
      local payload = blobs[count + 1]
      if not payload then refuse('INVALID', 'job ' .. id .. ' has no payload') end
      if #payload > MOST_PAYLOAD then
        refuse('TOOBIG', string.format('the payload of job %s has %d bytes; %d are allowed: store it elsewhere and pass '
          .. 'a reference', id, #payload, MOST_PAYLOAD))
      end
      exists[id] = look_up(id, args)
    end
  end
  return count, exists
end

local function remove_existing(id)
  local job, waiters = load_job(id, 'w')
  erase(id, job.queue, job.state)
  event('deleted', id)
  settle()
  tell_waiters(job, waiters)
end

local function store_job(batch, head, id, arrival, payload, due, token)
  local job = new_job(id, batch.queue, arrival)
  job.priority = batch.priority or 0
  local fields = { 'h', head, 'p', store_blob('p', id, payload) }
  if token then fields[5], fields[6] = 'k', token .. ' 1' end
  if due then to_scheduled(job, due, fields) else to_waiting(job, fields) end
  event('enqueued', id)
end

local function due_time(batch)
  local due = batch.due or (batch.delay and now + batch.delay)
  return due and due > now and due or nil
end

verb('enqueue', {}, function(args, blobs)
  local count, exists = check_enqueue(args, blobs)
  local arrival, place, reply, awake = reserve_arrivals(count), 0, { now }, {}
  for _, batch in ipairs(args.batches) do
    batch.created = now
    local head, due = pack_head(batch), due_time(batch)
    redis.call('ZADD', key.queues(), 0, batch.queue)
    for _, id in ipairs(batch.ids) do
      place = place + 1
      local stored = not exists[id] or (args.exists == 'replace' and exists[id] == 'there')
      reply[place + 1] = (stored or exists[id] == 'ours') and 1 or 0
      if stored then
        if exists[id] then remove_existing(id) end
        store_job(batch, head, id, arrival + place, blobs[place + 1], due, args.token)
        -- One that is due soon wakes too: whoever is idle may be about to wait for longer than that.
        awake[batch.queue] = awake[batch.queue] or not due or due < now + BLOCK
      end
    end
  end
  settle()
  for queue, wanted in pairs(awake) do
    if wanted then wake(queue) end
  end
  publish()
  return reply
end)
