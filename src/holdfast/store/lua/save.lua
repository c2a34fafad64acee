-- save: store the checkpoint and progress of a running job.
--
--   args.executor, args.id, args.attempt   the attempt
--   args.created    when the job was created, according to its claim
--   args.progress   text (default: unchanged)
--   args.notes      entries for its history, up to 100
--   args.fields     table of names and texts to store with the job; see fields.lua
--   args.remove     names of fields to remove
--   args.tags       tags to add; args.untags: tags to remove; see marks.lua
--   args.renew      extend the lease, too
--   args.token      with notes: see call.lua
--   blobs           the checkpoint (default: unchanged)
--
-- Errors: LOST, TOOBIG, INVALID. Returns 1 if cancellation was requested, else 0; with `fields` or `remove`, a list of this
-- number and all fields of the job: name, text, name, text ...; with `tags` or `untags`, of this number and all its tags

local CANCELLING, add_note, check_executor = core.CANCELLING, core.add_note, core.check_executor
local check_id, check_integer, check_list, emit = core.check_id, core.check_integer, core.check_list, core.emit
local has, load_held, mark_extra, pack_hold = core.has, core.load_held, core.mark_extra, core.pack_hold
local flush, marks, own_fields, parse_hold = core.flush, core.marks, core.own_fields, core.parse_hold
local publish_events, refuse = core.publish_events, core.refuse
local register = core.register
local store_blob = core.store_blob
local MAX_CHECKPOINT, MAX_NOTES, MAX_PROGRESS = constants.MAX_CHECKPOINT, constants.MAX_NOTES, constants.MAX_PROGRESS

local function add_blob(fields, letter, job, bytes)
  local id = job.id
  local kept = store_blob(letter, id, bytes)
  if kept == '>' then mark_extra(job) end
  if kept ~= '>' then redis.call('DEL', key.blob(letter, id)) end -- the previous one may have been long
  fields[#fields + 1], fields[#fields + 2] = letter, kept
end

local function save_fields(job, args, checkpoint)
  local fields = {}
  if checkpoint then add_blob(fields, 'c', job, checkpoint) end
  if args.progress then add_blob(fields, 'f', job, args.progress) end
  return fields
end

local function check_notes(notes)
  if #check_list(notes, 'notes', 0) > MAX_NOTES then
    refuse('TOOBIG', string.format('more than %d notes in one call', MAX_NOTES))
  end
  for _, text in ipairs(notes) do
    if type(text) ~= 'string' then refuse('INVALID', 'a note must be text') end
  end
end

local function renew_lease(executor, job)
  local id = job.id
  local attempt, cancelling, spared, length = parse_hold(redis.call('HGET', key.held(executor), id), job)
  redis.call('ZADD', key.timers, now + length, id)
  if spared > 0 then redis.call('HSET', key.held(executor), id, pack_hold(attempt, cancelling, 0, length)) end
end

-- Returns the fields to set, as a list, and the names of those to remove; or nil if the call changes none.
local function check_own_fields(args)
  if not args.fields and not args.remove then return nil end
  local list = own_fields.check(args.fields or {}, 'fields')
  return list, own_fields.check_names(check_list(args.remove or {}, 'remove', 0))
end

-- The marks that the job would have, and those that it has; or nil if the call changes no tags.
local function changed_marks(job, args)
  if not args.tags and not args.untags then return nil end
  local before = marks.of(job)
  local wanted = marks.changed_tags(before, args.tags or {}, args.untags or {})
  if #wanted.tags > constants.MAX_TAGS_PER_JOB then
    refuse('TOOBIG', string.format('job %s would have %d tags (limit %d)', job.id, #wanted.tags, constants.MAX_TAGS_PER_JOB))
  end
  return wanted, before
end

register('save', { 'allow-oom' }, function(args, blobs)
  check_executor(args.executor)
  check_id(args.id)
  check_integer(args.attempt, 'the attempt', 1, 2 ^ 31)
  local checkpoint = blobs[2]
  if checkpoint and #checkpoint > MAX_CHECKPOINT then
    refuse('TOOBIG', string.format('the checkpoint of job %s is %d bytes (limit %d); save a reference', args.id,
      #checkpoint, MAX_CHECKPOINT))
  end
  if type(args.progress or '') ~= 'string' then refuse('INVALID', '`progress` must be text') end
  if #(args.progress or '') > MAX_PROGRESS then
    refuse('TOOBIG', string.format('the progress of job %s is %d bytes (limit %d)', args.id, #args.progress, MAX_PROGRESS))
  end
  check_notes(args.notes or {})
  local list, removed = check_own_fields(args)
  for _, name in ipairs({ 'tags', 'untags' }) do args[name] = args[name] and marks.check_tags(args[name]) end
  local job = load_held(args.executor, args.id, args.attempt, args.created)
  if not job then
    refuse('LOST', string.format('attempt %d of job %s has lost its lease: nothing was saved', args.attempt, args.id))
  end
  if list then own_fields.check_number(job.id, list, removed) end
  local wanted, before = changed_marks(job, args)
  local fields = save_fields(job, args, checkpoint)
  if #fields > 0 then redis.call('HSET', key.job(args.id), unpack(fields)) end
  for _, text in ipairs(args.notes or {}) do add_note(job, 'n', text) end
  if args.renew then renew_lease(args.executor, job) end
  local all = list and own_fields.change(job, list, removed)
  if wanted then
    marks.change(job, before, wanted)
    flush()
    all = wanted.tags
  end
  emit('saved', job)
  publish_events(args.executor)
  local cancelling = has(job.flags, CANCELLING) and 1 or 0
  return all and { cancelling, all } or cancelling
end)
