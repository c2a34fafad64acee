-- check: find what does not fit together in the store, and repair it.
--
-- The record is authoritative, as in repair.lua. A check looks at each key of the namespace (see check_walk.lua), and compares it
-- with everything it must agree with in the same call, so nothing that runs meanwhile can look wrong. What is wrong is a
-- finding: a code of CODES, and an example. Who adds a code adds a row to CODES, and a damage to tests/store/lua/test_check.py.
--
--   check.kind(family, {...})       declare how the keys of a family are checked
--   check.find(code, example, fix)  record a finding; while repairing, call `fix`
--
-- Nothing that is not understood is deleted: a key of an unknown kind stays, a key of a wrong type is set aside, a record that
-- cannot be read stays for a release that can.

local flush, is_refusal, recover = core.flush, core.is_refusal, core.recover
local load_job, on_first_call, repair = core.load_job, core.on_first_call, core.repair

local MAX_EXAMPLES, MAX_EXAMPLE = 5, 200
local DAMAGED_TTL = 30 * 86400000

-- Code, what it means, what a repair does (nil: nothing can be done here).
local CODES = {
  -- keys
  { 'unknown_key', 'a key or an entry of a kind that this release does not know' },
  { 'wrong_type', 'a key has the wrong type', 'keep it as damaged:<key> for 30 days, and rebuild the key from the records' },
  { 'never_expires', 'a key that must expire does not', 'set its expiry' },
  { 'expires', 'a key that must stay has an expiry', 'remove the expiry' },
  { 'not_checked', 'an unexpected error prevented the check of a key; the log of the server has the error' },
  { 'orphan', 'a key belongs to something that does not exist', 'delete the key' },
  { 'damaged_value', 'a key or an entry of it cannot be read', 'restore it from what else is known, or else delete what cannot be read' },
  -- meta
  { 'meta_lost', 'the key `meta` is lost', 'create it; arrival numbers continue after all that were assigned' },
  { 'arrivals_behind', 'a job has a higher arrival number than the last one assigned', 'continue after it' },
  { 'marker', 'a marker of `meta` disagrees with the keys', 'set the marker from the keys' },
  { 'config_lost', 'settings are lost, or were changed without `configure`', 'restore them from their copy, if there is one' },
  { 'config_copy', 'the copy of the settings is missing or old', 'copy the settings' },
  -- records
  { 'record_damaged', 'the record of a job cannot be read' },
  { 'record_newer', 'the record of a job was written by a newer release' },
  { 'flags', 'the flags of a record disagree with its fields', 'set the flags from the fields' },
  { 'stray_field', 'a record has a field that belongs to another state', 'delete the field' },
  { 'attempt_lost', 'a running job has no record of its attempt', 'record the executor that holds the job, or else an unknown one; the lease decides' },
  { 'payload_lost', 'the payload of a job is lost' },
  { 'result_lost', 'the result of a succeeded job is lost' },
  { 'value_lost', 'a long checkpoint, progress or list of tags is lost', 'remove it from the record' },
  { 'failure_unnamed', 'a failed job has no group, fingerprint or reason', 'name them `error` and `exhausted`' },
  { 'stray_value', 'the record of the job does not name this long value', 'name it again if the record has lost its field, else delete it' },
  { 'unflagged_keys', 'a job has keys that would outlive it', 'flag them, so that they are deleted with the job' },
  -- indexes
  { 'not_indexed', 'a job is missing from the index of its state', 'add it' },
  { 'misplaced', 'a job or name has the wrong score in a sorted set', 'correct the score' },
  { 'stray_entry', 'an index has an entry that no record confirms', 'remove the entry' },
  { 'unlisted', 'something is missing from the list of its kind: a queue, a batch, a schedule ...', 'list it' },
  { 'no_timer', 'a scheduled or running job, a deadline, a limit or a schedule has no timer', 'set the timer' },
  { 'stray_timer', 'a timer belongs to nothing that needs one', 'remove the timer' },
  { 'no_hold', 'an executor does not hold the job that it runs, or holds another attempt', 'restore the hold' },
  { 'stray_hold', 'an executor holds a job that it does not run', 'remove the hold' },
  { 'not_expiring', 'an ended job with its own time to live is not listed for removal', 'list it' },
  { 'failure_unlisted', 'a failed job is not listed by group, fingerprint and task', 'list it' },
  { 'marks_unlisted', 'a job is missing at its tags, in its scope, or among the tracked jobs', 'add it' },
  { 'wrong_count', 'a catalogue has the wrong number of jobs or the wrong time of a name', 'set it from the index' },
  -- dependencies
  { 'dependency_lost', 'a blocked job has lost the record of a job that it waits for', 'record it again' },
  { 'dependencies_lost', 'a blocked job has lost its dependencies', 'run or cancel the job if its policy says so' },
  { 'dependency_count', 'a job has the wrong number of unmet dependencies', 'count them again; fewer only after a pass that found no lost ones' },
  { 'dependency_missed', 'a job waits for another that has ended or is gone', 'resolve the dependency' },
  { 'not_dependent', 'a job is missing among the dependents of a job that it waits for', 'add it' },
  { 'blocked_wrongly', 'a job is blocked although all its known dependencies are met', 'unblock it, if its count agrees or after a pass that found no lost ones' },
  -- limits and keys
  { 'no_slot', 'a running job does not hold a slot of its limit', 'give it the slot' },
  { 'stray_slot', 'a job holds a slot that it should not', 'release the slot' },
  { 'not_parked', 'a throttled job is not parked by its limit', 'park it, or make it waiting' },
  { 'stranded', 'a limit has free slots, and nothing will start the jobs that it parked', 'start them' },
  { 'unique_lost', 'a job does not own its unique key', 'give it the key, unless another job owns it' },
  { 'stray_unique', 'a unique key belongs to a job that must not own it', 'release the key' },
  -- batches, pools
  { 'not_open', 'a batch does not know a member that has not ended', 'add the member' },
  { 'not_done', 'a batch should have ended', 'end it' },
  { 'pool_unaware', 'a pool does not know that jobs wait in one of its queues', 'mark the queue as ready' },
}

local ROW_OF = {}
local check = { kinds = {}, CODES = CODES }
local step -- what this call does: repairs, is_again (not the first pass), units (left to spend), found, keys, entries, memory

on_first_call[#on_first_call + 1] = function()
  for _, row in ipairs(CODES) do ROW_OF[row[1]] = row end
end

function check.begin(repairs, units, is_again)
  step = { repairs = repairs, is_again = is_again, units = units, found = {}, order = {}, keys = 0, entries = 0, memory = {}, names = {} }
  return step
end

function check.step() return step end

-- Have the call do less after this. A unit is about five commands.
function check.spend(units) step.units = step.units - units end

-- Run a repair. Returns whether it was done; an error is logged, and concerns this finding alone.
local function run_fix(fix)
  check.spend(4)
  step.has_repaired = true
  local done, answer = pcall(function()
    local is_left = fix() == false
    flush()
    if changed_counts then core.marks.store_counts() end
    return not is_left
  end)
  if not done and not is_refusal(answer) then recover(answer) end
  return done and answer
end

-- Record a finding. While repairing, call `fix`, which returns false if it could not repair it.
function check.find(code, example, fix)
  local found = step.found[code]
  if not found then
    found = { count = 0, repaired = 0, examples = {} }
    step.found[code], step.order[#step.order + 1] = found, code
  end
  found.count = found.count + 1
  if #found.examples < MAX_EXAMPLES then found.examples[#found.examples + 1] = string.sub(example, 1, MAX_EXAMPLE) end
  if fix and step.repairs and run_fix(fix) then found.repaired = found.repaired + 1 end
end

-- The findings of this call: code, what it means, what a repair does, count, how many were repaired, and examples.
function check.findings()
  local rows = {}
  for place, code in ipairs(step.order) do
    local found, row = step.found[code], ROW_OF[code]
    rows[place] = { code, row[2], row[3] or '', found.count, found.repaired, found.examples }
  end
  return rows
end

-- Report a key of a wrong type. A job's record stays: a newer release may know it.
function check.report_type(name)
  if core.parse_key(name) == 'j' then return check.find('record_damaged', core.short_key(name)) end
  check.find('wrong_type', core.short_key(name), function()
    local damaged = key.damaged(core.short_key(name))
    redis.call('RENAME', name, damaged)
    redis.call('PEXPIRE', damaged, DAMAGED_TTL)
  end)
end

-- Like redis.call, for reading: the reply is `missing` if the key is of a wrong type, which is reported at the key itself.
function check.read(missing, command, name, ...)
  local reply = redis.pcall(command, name, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, '^WRONGTYPE') then error(reply.err, 0) end
  return missing
end

-- The score of a member, or false.
function check.score(name, member) return tonumber(check.read(false, 'ZSCORE', name, member) or nil) or false end

-- An entry of a sorted set that is read in the order of names, which it has only as long as all scores are 0.
function check.sorted_by_name(example, name, member, place)
  if tonumber(place) == 0 then return end
  check.find('misplaced', example, function() redis.call('ZADD', name, 0, member) end)
end

-- Whether a score may be a time.
function check.is_time(place) return place and place >= 0 and place < 2 ^ 53 end

function check.exists(...) return redis.call('EXISTS', ...) > 0 end

-- A fix that makes the indexes of a job agree with its record.
function check.repair_job(id, found_in)
  return function() return repair(id, found_in) end
end

-- A fix that removes a member of a sorted set or a set, or a field of a hash.
function check.removal(command, name, member)
  return function() redis.call(command, name, member) end
end

function check.deletion(name)
  return function() redis.call('UNLINK', name) end
end

-- Whether a job does not exist. One that cannot be read exists.
function check.is_gone(id)
  local job, fault = load_job(id)
  return not job and fault == 'NOTFOUND', job
end

-- Whether a text is the id of a job. Others may be entries of a newer release.
function check.is_id(text)
  return #text <= constants.MAX_ID + 6 and string.find(text, '^[%w._:@/%-]+~?%d*$') ~= nil
end

-- Whether a text may be the name of a queue, and so be listed. Clients cannot read others.
function check.is_queue(text) return #text <= constants.MAX_NAME and string.find(text, '^[%w_.%-]+$') ~= nil end

-- The same of a batch, a schedule, a subscription or an operation.
function check.is_name(text) return #text <= constants.MAX_NAME and string.find(text, '^[%w_.:%-]+$') ~= nil end

function check.unknown(name, entry) check.find('unknown_key', core.short_key(name) .. (entry and ' ' .. entry or '')) end

-- Declare a family of keys.
--
--   type     the type of the keys
--   name     how the family is called in the report of memory
--   single   the family is one key, without a colon
--   ttl      the keys must expire: the milliseconds that a repair sets. 'any': they may, but need not
--   each     there is one for each job: their memory is measured by sampling
--   whole    (rest, key) checks a key without its entries; false: do not look at its entries
--   entry    (rest, key, member, value) checks one entry
function check.kind(family, kind) check.kinds[family] = kind end

core.check = check
