-- dependencies: jobs that wait for other jobs to end.
--
-- A blocked job has a hash of its dependencies: id -> edge. An edge is the position in the list, then `w` if any outcome
-- satisfies it, then a letter: `-` while the dependency has not ended, else S, F or C; then the time at which the job learned of
-- that, unless the dependency had ended before. Dependencies that were added by the running job itself have position 0. The
-- field `b` of its record contains the number of unmet dependencies, the policy if one fails or is cancelled (b: stay blocked,
-- c: cancel, r: run anyway), and when the job is due. A job with dependents has the flag AWAITED, and a sorted set of them by
-- arrival.
--
-- When a job ends, `flush` resolves its dependents, up to 1,000 per call. The rest is recorded in the hash `resolving`, job ->
-- letter and arrival of the last dependent done, and continued by the next calls that advance time.

local AWAITED, FINAL, LETTER_OF, add_note = core.AWAITED, core.FINAL, core.LETTER_OF, core.add_note
local assign_arrival, emit, finish_job, flush = core.assign_arrival, core.emit, core.finish_job, core.flush
local has, load_job, loop_despite_errors, move = core.has, core.load_job, core.loop_despite_errors, core.move
local outcomes = core.outcomes
local pack_status, reserve_arrivals, set_marker = core.pack_status, core.reserve_arrivals, core.set_marker
local to_scheduled, to_waiting, wake_later, with = core.to_scheduled, core.to_waiting, core.wake_later, core.with

local DOOMED, LOST = 'one of its dependencies has failed', 'its dependencies are missing from the store'
local dependencies = { MAX_CONTINUED = 100, MAX_INSPECTED = 10000 }

dependencies.LETTER_OF_POLICY = { block = 'b', cancel = 'c', run = 'r' }
dependencies.LETTER_OF_FINAL = { succeeded = 'S', failed = 'F', cancelled = 'C' }
dependencies.STATE_OF = { ['-'] = 'pending', S = 'succeeded', F = 'failed', C = 'cancelled' }

function dependencies.state_letter(job) return dependencies.LETTER_OF_FINAL[job.state] or '-' end

function dependencies.satisfies(letter, policy) return letter == 'S' or (policy == 'r' and letter ~= '-') end

-- Parse an edge: position, letter, its policy, whether any outcome satisfies it, and when the job learned of the letter, or 0.
function dependencies.parse_edge(mark, policy)
  local place, however, letter, time = string.match(mark, '^(%d+)(w?)(.)(%d*)$')
  return tonumber(place or 0), letter or '-', however == 'w' and 'r' or policy, however == 'w', tonumber(time) or 0
end

function dependencies.pack_edge(place, letter, however, time)
  return string.format('%d', place) .. (however and 'w' or '') .. letter .. (time and time > 0 and string.format('%.0f', time) or '')
end

-- The unmet dependencies of a blocked job; other jobs have none.
function dependencies.unmet(id)
  local fields, ids = redis.pcall('HMGET', key.job(id), 's', 'b'), {}
  if string.sub(fields[1] or '', 1, 1) ~= LETTER_OF.blocked then return ids end
  local _, policy = dependencies.parse_field(fields[2])
  local marks = redis.call('HGETALL', key.after(id))
  for at = 1, #marks, 2 do
    local _, letter, own = dependencies.parse_edge(marks[at + 1], policy)
    if not dependencies.satisfies(letter, own) then ids[#ids + 1] = marks[at] end
  end
  return ids
end

-- Whether a job would depend on itself, following the dependencies of `added`; nil if there are too many. Only blocked
-- jobs have dependencies; a job that becomes blocked later is checked then.
function dependencies.is_cycle(id, added)
  local seen, list, at = {}, {}, 1
  for _, other in ipairs(added) do list[#list + 1] = other end
  while at <= #list do
    if list[at] == id then return true end
    if at > dependencies.MAX_INSPECTED then return nil end
    for _, other in ipairs(dependencies.unmet(list[at])) do
      if not seen[other] then
        seen[other] = true
        list[#list + 1] = other
      end
    end
    at = at + 1
  end
  return false
end

function dependencies.parse_field(field)
  local left, policy, due = string.match(field or '', '^(%d+) ([bcr]) (%d+)$')
  return tonumber(left or 0), policy or 'b', tonumber(due or 0)
end

function dependencies.pack_field(left, policy, due) return string.format('%d %s %.0f', left, policy, due) end

function dependencies.to_blocked(job, fields) move(job, 'blocked', now, nil, unpack(fields or {})) end

-- Move a job whose dependencies are all met.
function dependencies.unblock(job, due)
  assign_arrival(job)
  if due > now then to_scheduled(job, due) else to_waiting(job) end
  wake_later(job.queue)
  emit('unblocked', job)
end

-- Flag a job as awaited, so that its end resolves dependents.
function dependencies.mark_awaited(job)
  if has(job.flags, AWAITED) then return end
  job.flags = with(job.flags, AWAITED, true)
  redis.call('HSET', key.job(job.id), 's', pack_status(job))
end

-- Remove a blocked job that ends from its dependencies.
local function unlink(job)
  local marks = redis.call('HGETALL', key.after(job.id))
  for place = 1, #marks, 2 do redis.call('ZREM', key.dependents(marks[place]), job.id) end
end

local function cancel_dependent(job, note, detail, fields)
  add_note(job, 'C', note, '')
  finish_job(job, 'cancelled', nil, fields, detail)
end

-- The first position that no dependency has; 0, that of a job that it waits for since it ran, if there is no gap.
local function free_place(job, places)
  for place = 1, #places + 1 do
    if not places[place] and (place <= places.last or job.attempt == 0) then return place end
  end
  return 0
end

-- The count of a blocked job has a dependency that it does not know: the position for one. Else nil.
function dependencies.lost_place(job, field, edges)
  local left, policy = dependencies.parse_field(field)
  local unmet, places = 0, { last = 0 }
  for at = 1, #edges, 2 do
    local place, letter, own = dependencies.parse_edge(edges[at + 1], policy)
    if not dependencies.satisfies(letter, own) then unmet = unmet + 1 end
    places[place], places.last = true, math.max(places.last, place)
  end
  return left > unmet and free_place(job, places) or nil
end

-- The field of a dependency of a blocked job; a new one if it was lost; nil if the job does not wait for the other.
local function edge_of(job, field, other_id)
  if not job or job.state ~= 'blocked' then return nil end
  local mark = redis.call('HGET', key.after(job.id), other_id)
  if mark then return mark end
  local place = dependencies.lost_place(job, field, redis.call('HGETALL', key.after(job.id)))
  return place and dependencies.pack_edge(place, '-')
end

-- Update a dependent when a dependency has ended or restarted.
function dependencies.resolve(id, ended, letter)
  local job, field = load_job(id, 'b')
  local mark = edge_of(job, field, ended)
  if not mark then return redis.call('ZREM', key.dependents(ended), id) end
  local left, policy, due = dependencies.parse_field(field)
  local place, before, own, however = dependencies.parse_edge(mark, policy)
  redis.call('HSET', key.after(id), ended, dependencies.pack_edge(place, letter, however, letter ~= '-' and now))
  local is_satisfied = dependencies.satisfies(letter, own)
  if is_satisfied then redis.call('ZREM', key.dependents(ended), id) end
  if is_satisfied and not dependencies.satisfies(before, own) then left = left - 1 end
  redis.call('HSET', key.job(id), 'b', dependencies.pack_field(math.max(left, 0), policy, due))
  if left <= 0 then return dependencies.unblock(job, due) end
  if own == 'c' and letter ~= '-' and not is_satisfied then
    local state = dependencies.STATE_OF[letter]
    cancel_dependent(job, 'job ' .. ended .. ' ' .. state, { ended, 'dependency ' .. state })
  end
end

-- Whether the dependents of an ended job are still being resolved.
function dependencies.is_resolving(id) return markers.resolving and redis.call('HEXISTS', key.resolving(), id) == 1 end

-- A dependency that is gone counts as it ended; as cancelled if it is not known how.
local function letter_of_missing(id) return outcomes.find(id) or 'C' end

-- Resolve the dependents of a job that is gone.
function dependencies.resolve_missing(id)
  if redis.call('EXISTS', key.dependents(id)) == 0 or dependencies.is_resolving(id) then return end
  to_resolve[#to_resolve + 1] = { id, letter_of_missing(id), '-inf' }
end

-- Resolve a dependency that is still pending for a blocked job, although it is gone or has ended, and is not being
-- resolved.
function dependencies.resolve_missed(id, other_id)
  local other, fault = load_job(other_id)
  local letter = other and dependencies.state_letter(other) or fault == 'NOTFOUND' and letter_of_missing(other_id) or '-'
  if letter == '-' or dependencies.is_resolving(other_id) then return end
  if not other and redis.call('EXISTS', key.dependents(other_id)) == 1 then return dependencies.resolve_missing(other_id) end
  dependencies.resolve(id, other_id, letter)
end

-- The dependencies of a blocked job are lost: treat them as cancelled.
function dependencies.resolve_without_edges(job)
  local _, policy, due = dependencies.parse_field(redis.call('HGET', key.job(job.id), 'b'))
  if policy == 'r' then
    redis.call('HSET', key.job(job.id), 'b', dependencies.pack_field(0, policy, due))
    dependencies.unblock(job, due)
  elseif policy == 'c' then
    cancel_dependent(job, LOST, { '', LOST })
  end
end

-- Resolve some dependents of an ended job. A dependent for which this fails is skipped, as it would fail in every call.
-- Returns the arrival of the last one, or nil if all are done, and their number.
function dependencies.resolve_some(ended, letter, from, max)
  local list = redis.call('ZRANGEBYSCORE', key.dependents(ended), '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, max)
  local place = -1
  loop_despite_errors(function()
    while place + 2 < #list do
      place = place + 2
      dependencies.resolve(list[place], ended, letter)
    end
  end)
  return #list == 2 * max and list[#list] or nil, #list / 2
end

function dependencies.save_position(ended, letter, from)
  redis.call('HSET', key.resolving(), ended, letter .. ' ' .. from)
  if not markers.resolving then set_marker('resolving', 1) end
end

local function resolve_next()
  local place = (to_resolve.started or 0) + 1
  to_resolve.started = place
  local ended, letter, from = unpack(to_resolve[place])
  local rest, count = from, 0
  if budget.resolved > 0 then rest, count = dependencies.resolve_some(ended, letter, from, budget.resolved) end
  budget.resolved = budget.resolved - count
  if rest then
    dependencies.save_position(ended, letter, rest)
  elseif redis.call('EXISTS', key.job(ended)) == 0 then
    redis.call('DEL', key.dependents(ended)) -- dependents that stay blocked learn nothing more
  end
end

-- Resolve all jobs that ended in this call, and those that end as a consequence; each job moves at most once. After an
-- error, unresolved ones are recorded for later calls, and the list is replaced.
local function resolve_all()
  loop_despite_errors(function()
    while (to_resolve.started or 0) < #to_resolve do resolve_next() end
  end)
  to_resolve = {}
end

-- Continue what earlier calls left.
function dependencies.continue_resolving()
  if not markers.resolving then return end
  for _, ended in ipairs(redis.call('HRANDFIELD', key.resolving(), dependencies.MAX_CONTINUED)) do
    local letter, from = string.match(redis.call('HGET', key.resolving(), ended), '^([SFC%-]) (%S+)$')
    local job = load_job(ended)
    redis.call('HDEL', key.resolving(), ended)
    if letter and (not job or dependencies.state_letter(job) == letter) then to_resolve[#to_resolve + 1] = { ended, letter, from } end
  end
  flush()
  if redis.call('EXISTS', key.resolving()) == 1 then return end
  set_marker('resolving', nil)
end

-- Add a dependency, which exists or is stored in the same call. Returns 1 if it is unmet, else 0.
function dependencies.link(id, arrival, dependency, place, letter, policy, however, time)
  redis.call('HSET', key.after(id), dependency, dependencies.pack_edge(place, letter, however, time))
  if dependencies.satisfies(letter, policy) then
    redis.call('ZREM', key.dependents(dependency), id)
    return 0
  end
  redis.call('ZADD', key.dependents(dependency), arrival, id)
  return 1
end

-- Add a dependency that ended and was removed since. Returns as above.
function dependencies.link_removed(id, dependency, place, letter, policy, however, time)
  redis.call('HSET', key.after(id), dependency, dependencies.pack_edge(place, letter, however, time))
  if not dependencies.satisfies(letter, policy) then return 1 end
  redis.call('ZREM', key.dependents(dependency), id)
  return 0
end

-- Add a dependency. `other`: the job; false if it was removed after its end, nil if it is stored in the same call. Returns as
-- above, and the letter.
function dependencies.link_known(id, arrival, other_id, other, place, policy)
  if other == false then
    local letter = letter_of_missing(other_id)
    return dependencies.link_removed(id, other_id, place, letter, policy), letter
  end
  local letter = other and dependencies.state_letter(other) or '-'
  if other then dependencies.mark_awaited(other) end
  return dependencies.link(id, arrival, other_id, place, letter, policy), letter
end

-- Relink a dependency according to its current state. If it is gone or unreadable, its last known state applies; a
-- pending one that is gone without a known outcome counts as cancelled if the job `is_blocked`, and is dropped otherwise.
-- Returns as above, and the letter.
function dependencies.relink(id, dependency, mark, policy, is_blocked)
  local place, before, own, however, time = dependencies.parse_edge(mark, policy)
  local letter, other, fault = before, load_job(dependency)
  if fault == 'NEWER' or fault == 'DAMAGED' then
    return dependencies.link(id, reserve_arrivals(1) + 1, dependency, place, letter, own, however, time), letter
  end
  if other then
    letter = dependencies.state_letter(other)
    dependencies.mark_awaited(other)
    if letter ~= before then time = letter ~= '-' and now or 0 end
    return dependencies.link(id, reserve_arrivals(1) + 1, dependency, place, letter, own, however, time), letter
  end
  if before == '-' then redis.call('ZREM', key.dependents(dependency), id) end -- it may be about to be resolved
  letter = outcomes.find(dependency) or before
  if letter == '-' and is_blocked and not dependencies.is_resolving(dependency) then letter = 'C' end
  if letter == '-' then
    redis.call('HDEL', key.after(id), dependency)
    return 0, letter
  end
  time = letter == before and time or now
  return dependencies.link_removed(id, dependency, place, letter, own, however, time), letter
end

-- Add the dependencies of a new job, or replace those of another. `known` contains existing dependencies, and false for
-- those that were removed after their end; the others are stored in the same call. Returns the field `b`, the number of unmet
-- ones, and whether the job must be cancelled.
function dependencies.add(batch, id, arrival, known)
  local policy, left, is_doomed = dependencies.LETTER_OF_POLICY[batch.on_failed or 'block'], 0, false
  for place, other_id in ipairs(batch.after) do
    local other = known[other_id] and load_job(other_id) -- its current state: it may have changed since it was looked up
    local wrong, letter = dependencies.link_known(id, arrival, other_id, other, place, policy)
    left, is_doomed = left + wrong, is_doomed or (wrong == 1 and letter ~= '-')
  end
  return dependencies.pack_field(left, policy, batch.due_time or 0), left, is_doomed and policy == 'c'
end

-- Cancel a job one of whose dependencies has failed already. It is in no index yet, or flushed.
function dependencies.cancel_doomed(job, fields)
  unlink(job)
  cancel_dependent(job, DOOMED, { '', DOOMED }, fields)
end

-- Drop the dependencies that the running job itself added.
function dependencies.drop_runtime_edges(id)
  local marks, old = redis.call('HGETALL', key.after(id)), {}
  for at = 1, #marks, 2 do
    if dependencies.parse_edge(marks[at + 1]) == 0 then old[#old + 1] = marks[at] end
  end
  if #old > 0 then redis.call('HDEL', key.after(id), unpack(old)) end
end

-- Block a running job until other jobs have ended, with any outcome. Jobs that have ended or are gone are skipped.
-- Returns as above.
function dependencies.wait_while_running(job, ids)
  dependencies.drop_runtime_edges(job.id)
  local left, _, policy = 0, dependencies.parse_field(redis.call('HGET', key.job(job.id), 'b') or '0 b 0')
  for _, id in ipairs(ids) do
    local other = id ~= job.id and load_job(id)
    if other and not FINAL[other.state] then
      local place = dependencies.parse_edge(redis.call('HGET', key.after(job.id), id) or '0w-')
      dependencies.mark_awaited(other)
      left = left + dependencies.link(job.id, reserve_arrivals(1) + 1, id, place, '-', 'r', true)
    end
  end
  return dependencies.pack_field(left, policy, 0), left
end

-- A finished job restarts: relink its unmet dependencies. Returns their number.
function dependencies.relink_all(job, field)
  local _, policy = dependencies.parse_field(field)
  dependencies.drop_runtime_edges(job.id)
  local marks, left = redis.call('HGETALL', key.after(job.id)), 0
  for at = 1, #marks, 2 do
    left = left + (dependencies.relink(job.id, marks[at], marks[at + 1], policy))
  end
  redis.call('HSET', key.job(job.id), 'b', dependencies.pack_field(left, policy, 0))
  return left
end

core.resolve_all, core.unlink, core.dependencies = resolve_all, unlink, dependencies
