-- save: keep where a running job is, for itself and for its next attempt.
--
--   args.executor, args.id, args.attempt   the attempt that saves
--   args.created    when the job was created, as its claim said
--   args.progress   what it says of its progress, as text; kept if not given
--   args.notes      entries for its history, up to 100
--   args.renew      prolong its lease too
--   args.token      with notes: see call.lua
--   blobs           the checkpoint; kept as it is if not given
--
-- Refuses LOST, TOOBIG, INVALID. Returns 1 if the job is to be cancelled, else 0.

local event, executor_name, integer, job_id, list_of = core.event, core.executor_name, core.integer, core.job_id, core.list_of
local publish, refuse, verb = core.publish, core.refuse, core.verb
local CANCELLING, has, mark_extra, note, store_blob = core.CANCELLING, core.has, core.mark_extra, core.note, core.store_blob
local holder, make_marks, parse_marks = core.holder, core.make_marks, core.parse_marks

local MAX_CHECKPOINT, MAX_PROGRESS, MAX_NOTES = constants.MAX_CHECKPOINT, constants.MAX_PROGRESS, constants.MAX_NOTES

local function add_blob(fields, letter, job, bytes)
  local id = job.id
  local kept = store_blob(letter, id, bytes)
  if kept == '>' then mark_extra(job) end
  if kept ~= '>' then redis.call('DEL', key.blob(letter, id)) end -- the last one may have been long
  fields[#fields + 1], fields[#fields + 2] = letter, kept
end

local function save_fields(job, args, checkpoint)
  local fields = {}
  if checkpoint then add_blob(fields, 'c', job, checkpoint) end
  if args.progress then add_blob(fields, 'f', job, args.progress) end
  return fields
end

local function check_notes(notes)
  if #list_of(notes, 'notes', 0) > MAX_NOTES then refuse('TOOBIG', string.format('more than %d notes', MAX_NOTES)) end
  for _, words in ipairs(notes) do
    if type(words) ~= 'string' then refuse('INVALID', 'a note must be a text') end
  end
end

local function prolong(executor, job)
  local id = job.id
  local attempt, cancelling, spared, length = parse_marks(redis.call('HGET', key.held(executor), id), job)
  redis.call('ZADD', key.timers, now + length, id)
  if spared > 0 then redis.call('HSET', key.held(executor), id, make_marks(attempt, cancelling, 0, length)) end
end

verb('save', { 'allow-oom' }, function(args, blobs)
  executor_name(args.executor)
  job_id(args.id)
  integer(args.attempt, 'the attempt', 1, 2 ^ 31)
  local checkpoint = blobs[2]
  if checkpoint and #checkpoint > MAX_CHECKPOINT then
    refuse('TOOBIG', string.format('the checkpoint of job %s has %d bytes; %d are allowed: save a reference', args.id,
      #checkpoint, MAX_CHECKPOINT))
  end
  if type(args.progress or '') ~= 'string' then refuse('INVALID', 'the progress must be a text') end
  if #(args.progress or '') > MAX_PROGRESS then refuse('TOOBIG', 'the progress of job ' .. args.id .. ' is too long') end
  check_notes(args.notes or {})
  local job = holder(args.executor, args.id, args.attempt, args.created)
  if not job then
    refuse('LOST', string.format('attempt %d of job %s has lost its lease: nothing was saved', args.attempt, args.id))
  end
  local fields = save_fields(job, args, checkpoint)
  if #fields > 0 then redis.call('HSET', key.job(args.id), unpack(fields)) end
  for _, words in ipairs(args.notes or {}) do note(job, 'n', words) end
  if args.renew then prolong(args.executor, job) end
  event('saved', args.id)
  publish(args.executor)
  return has(job.flags, CANCELLING) and 1 or 0
end)
