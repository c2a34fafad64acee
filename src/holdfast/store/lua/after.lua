-- after: jobs that wait for others to end.
--
-- A blocked job has a hash of the jobs that it waits for: id -> its place in the list, then `w` if it waits for its end,
-- however it ends, then a letter: `-` if it has not ended, else S, F or C. Those that a running job began to wait for have place
-- 0. The field `b` of its record says how many of them are not as they must be, what to do if one fails or is cancelled (b:
-- stay blocked, c: be cancelled, r: run all the same), and when the job is due. Each job that others wait for has the flag
-- AWAITED, and a sorted set of these, by arrival.
--
-- Who ends a job resolves those that wait for it, up to 1,000 in one call; `settle` does it. The rest is noted in a hash,
-- job -> its letter and the arrival of the last one done, and continued by whoever moves time on.

local event, go_on_after_failures, reserve_arrivals = core.event, core.go_on_after_failures, core.reserve_arrivals
local set_sign = core.set_sign
local AWAITED, FINAL, LETTER_OF, has, load_job = core.AWAITED, core.FINAL, core.LETTER_OF, core.has, core.load_job
local note, pack_status, with = core.note, core.pack_status, core.with
local awaken, move, settle, to_scheduled, to_waiting = core.awaken, core.move, core.settle, core.to_scheduled, core.to_waiting
local arrive = core.arrive
local conclude = core.conclude

local after = { CONTINUED_AT_ONCE = 100, LOOKED_AT = 10000 }

after.LETTER_OF_POLICY = { block = 'b', cancel = 'c', run = 'r' }
after.LETTER_OF_FINAL = { succeeded = 'S', failed = 'F', cancelled = 'C' }
after.WORD_OF = { ['-'] = 'pending', S = 'succeeded', F = 'failed', C = 'cancelled' }

function after.letter_of(job) return after.LETTER_OF_FINAL[job.state] or '-' end

function after.satisfies(letter, policy) return letter == 'S' or (policy == 'r' and letter ~= '-') end

-- What a mark says: place, letter, the policy that holds for it, and whether that is of the mark itself.
function after.read_mark(mark, policy)
  local place, however, letter = string.match(mark, '^(%d+)(w?)(.)$')
  return tonumber(place or 0), letter or '-', however == 'w' and 'r' or policy, however == 'w'
end

function after.make_mark(place, letter, however) return string.format('%d', place) .. (however and 'w' or '') .. letter end

-- Those that a blocked job waits for and that are not as they must be. No other job waits, and for no others.
function after.held_up_by(id)
  local fields, ids = redis.pcall('HMGET', key.job(id), 's', 'b'), {}
  if string.sub(fields[1] or '', 1, 1) ~= LETTER_OF.blocked then return ids end
  local _, policy = after.parse(fields[2])
  local marks = redis.call('HGETALL', key.after(id))
  for at = 1, #marks, 2 do
    local _, letter, own = after.read_mark(marks[at + 1], policy)
    if not after.satisfies(letter, own) then ids[#ids + 1] = marks[at] end
  end
  return ids
end

-- Whether a job would wait for itself: looks at all that those to be added wait for. Nothing if they are too many to look at.
-- Only blocked jobs wait; one that becomes so is looked at then.
function after.is_cycle(id, added)
  local seen, list, at = {}, {}, 1
  for _, other in ipairs(added) do list[#list + 1] = other end
  while at <= #list do
    if list[at] == id then return true end
    if at > after.LOOKED_AT then return nil end
    for _, other in ipairs(after.held_up_by(list[at])) do
      if not seen[other] then
        seen[other] = true
        list[#list + 1] = other
      end
    end
    at = at + 1
  end
  return false
end

function after.parse(field)
  local left, policy, due = string.match(field or '', '^(%d+) ([bcr]) (%d+)$')
  return tonumber(left or 0), policy or 'b', tonumber(due or 0)
end

function after.pack(left, policy, due) return string.format('%d %s %.0f', left, policy, due) end

function after.to_blocked(job, fields) move(job, 'blocked', now, nil, unpack(fields or {})) end

-- All of those that a job waits for are as they must be.
function after.unblock(job, due)
  arrive(job)
  if due > now then to_scheduled(job, due) else to_waiting(job) end
  awaken(job.queue)
  event('unblocked', job.id)
end

-- Note on a job that it is awaited, so that its end looks for those that wait.
function after.mark_awaited(job)
  if has(job.flags, AWAITED) then return end
  job.flags = with(job.flags, AWAITED, true)
  redis.call('HSET', key.job(job.id), 's', pack_status(job))
end

-- A blocked job ends: nobody has to tell it of anything any more.
local function unlink(job)
  local marks = redis.call('HGETALL', key.after(job.id))
  for place = 1, #marks, 2 do redis.call('ZREM', key.dependents(marks[place]), job.id) end
end

-- One job of which another waits has ended, or begun again.
function after.resolve_one(id, ended, letter)
  local job, field = load_job(id, 'b')
  local mark = redis.call('HGET', key.after(id), ended)
  if not job or job.state ~= 'blocked' or not mark then return redis.call('ZREM', key.dependents(ended), id) end
  local left, policy, due = after.parse(field)
  local _, before, own = after.read_mark(mark, policy)
  redis.call('HSET', key.after(id), ended, string.sub(mark, 1, -2) .. letter)
  local is_satisfied = after.satisfies(letter, own)
  if is_satisfied then redis.call('ZREM', key.dependents(ended), id) end
  if is_satisfied and not after.satisfies(before, own) then left = left - 1 end
  redis.call('HSET', key.job(id), 'b', after.pack(math.max(left, 0), policy, due))
  if left <= 0 then return after.unblock(job, due) end
  if own == 'c' and letter ~= '-' and not is_satisfied then
    note(job, 'C', 'job ' .. ended .. ' ' .. after.WORD_OF[letter])
    conclude(job, 'cancelled')
  end
end

-- Whether those that wait for an ended job are about to be told how it ended.
function after.is_being_told(id) return signs.resolving and redis.call('HEXISTS', key.resolving(), id) == 1 end

-- A parent that is gone, without having ended, counts as cancelled for those that wait for it.
function after.resolve_gone(id)
  if redis.call('EXISTS', key.dependents(id)) == 0 or after.is_being_told(id) then return end
  resolved[#resolved + 1] = { id, 'C', '-inf' }
end

-- A blocked job takes another for one that has not ended. If that is gone or has ended, and nobody is about to tell it, it is told.
function after.catch_up(id, other_id)
  local other, fault = load_job(other_id)
  local letter = other and after.letter_of(other) or fault == 'NOTFOUND' and 'C' or '-'
  if letter == '-' or after.is_being_told(other_id) then return end
  if not other and redis.call('EXISTS', key.dependents(other_id)) == 1 then return after.resolve_gone(other_id) end
  after.resolve_one(id, other_id, letter)
end

-- Nobody knows any more what a blocked job waits for: as if all of these were cancelled.
function after.wait_for_nobody(job)
  local _, policy, due = after.parse(redis.call('HGET', key.job(job.id), 'b'))
  if policy == 'r' then
    redis.call('HSET', key.job(job.id), 'b', after.pack(0, policy, due))
    after.unblock(job, due)
  elseif policy == 'c' then
    note(job, 'C', 'what it waits for is gone from the store')
    conclude(job, 'cancelled')
  end
end

-- Resolve some of those that wait for an ended job. One for which this fails stays as it is, and is not tried again: that would
-- fail again at each call. Returns the arrival of the last one, or nothing if all are done.
function after.resolve_some(ended, letter, from, most)
  local list = redis.call('ZRANGEBYSCORE', key.dependents(ended), '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  local place = -1
  go_on_after_failures(function()
    while place + 2 < #list do
      place = place + 2
      after.resolve_one(list[place], ended, letter)
    end
  end)
  return #list == 2 * most and list[#list] or nil, #list / 2
end

function after.note_rest(ended, letter, from)
  redis.call('HSET', key.resolving(), ended, letter .. ' ' .. from)
  if not signs.resolving then set_sign('resolving', 1) end
end

local function resolve_next()
  local place = (resolved.taken_up or 0) + 1
  resolved.taken_up = place
  local ended, letter, from = unpack(resolved[place])
  local rest, count = from, 0
  if budget.told > 0 then rest, count = after.resolve_some(ended, letter, from, budget.told) end
  budget.told = budget.told - count
  if rest then
    after.note_rest(ended, letter, rest)
  elseif redis.call('EXISTS', key.job(ended)) == 0 then
    redis.call('DEL', key.dependents(ended)) -- those that stay blocked by it are told of nothing more
  end
end

-- All that ended in this call, and what that ends in turn; each job moves once at most. If something fails, what was not taken
-- up is noted for later calls, and the list is another.
local function resolve_all()
  go_on_after_failures(function()
    while (resolved.taken_up or 0) < #resolved do resolve_next() end
  end)
  resolved = {}
end

-- Whoever moves time on continues what was left.
function after.go_on()
  if not signs.resolving then return end
  for _, ended in ipairs(redis.call('HRANDFIELD', key.resolving(), after.CONTINUED_AT_ONCE)) do
    local letter, from = string.match(redis.call('HGET', key.resolving(), ended), '^([SFC%-]) (%S+)$')
    local job = load_job(ended)
    redis.call('HDEL', key.resolving(), ended)
    if letter and (not job or after.letter_of(job) == letter) then resolved[#resolved + 1] = { ended, letter, from } end
  end
  settle()
  if redis.call('EXISTS', key.resolving()) == 1 then return end
  set_sign('resolving', nil)
end

-- Have a job wait for one more, which is there or is stored in the same call. Returns 1 if it is not as it must be, else 0.
function after.link(id, arrival, dependency, place, letter, policy, however)
  redis.call('HSET', key.after(id), dependency, after.make_mark(place, letter, however))
  if after.satisfies(letter, policy) then
    redis.call('ZREM', key.dependents(dependency), id)
    return 0
  end
  redis.call('ZADD', key.dependents(dependency), arrival, id)
  return 1
end

-- Have a job wait for one that it knows of, as that is now. One that is gone is as it was known last; if that was pending, it
-- counts as cancelled for a job that `is_blocked`, and others do not wait for it. One that cannot be read is as it was known
-- last. Returns as above, and the letter.
function after.link_as_it_is(id, dependency, mark, policy, is_blocked)
  local place, letter, own, however = after.read_mark(mark, policy)
  local other, fault = load_job(dependency)
  if fault == 'NEWER' or fault == 'DAMAGED' then
    return after.link(id, reserve_arrivals(1) + 1, dependency, place, letter, own, however), letter
  end
  if other then
    letter = after.letter_of(other)
    after.mark_awaited(other)
    return after.link(id, reserve_arrivals(1) + 1, dependency, place, letter, own, however), letter
  end
  if letter == '-' then
    redis.call('ZREM', key.dependents(dependency), id) -- it may be about to be told
    if not is_blocked or after.is_being_told(dependency) then
      redis.call('HDEL', key.after(id), dependency)
      return 0, letter
    end
    letter = 'C'
    redis.call('HSET', key.after(id), dependency, after.make_mark(place, letter, however))
  end
  return after.satisfies(letter, own) and 0 or 1, letter
end

-- Have a job wait for the first time, or for others than before. `known` has those of the jobs that are there; the others are
-- stored in the same call. Returns the field `b`, how many are not as they must be, and whether the job is to be cancelled.
function after.wait_for(batch, id, arrival, known)
  local policy, left, is_doomed = after.LETTER_OF_POLICY[batch.on_failed or 'block'], 0, false
  for place, other_id in ipairs(batch.after) do
    local other = known[other_id] and load_job(other_id) -- as it is now: it may have been handed on since it was looked up
    local letter = other and after.letter_of(other) or '-'
    if other then after.mark_awaited(other) end
    local wrong = after.link(id, arrival, other_id, place, letter, policy)
    left, is_doomed = left + wrong, is_doomed or (wrong == 1 and letter ~= '-')
  end
  return after.pack(left, policy, batch.due_time or 0), left, is_doomed and policy == 'c'
end

-- A job is to be cancelled with one that it waits for, which has failed already. It stands in no index yet, or is settled.
function after.doom(job, fields)
  unlink(job)
  note(job, 'C', 'a job that it waits for has failed')
  conclude(job, 'cancelled', nil, fields)
end

-- Those that a running job began to wait for are not of `after`: forget them.
function after.forget_waits(id)
  local marks, old = redis.call('HGETALL', key.after(id)), {}
  for at = 1, #marks, 2 do
    if after.read_mark(marks[at + 1]) == 0 then old[#old + 1] = marks[at] end
  end
  if #old > 0 then redis.call('HDEL', key.after(id), unpack(old)) end
end

-- A running job waits for others to end, however. Those that have, or are gone, are not waited for. Returns as above.
function after.wait_anew(job, ids)
  after.forget_waits(job.id)
  local left, _, policy = 0, after.parse(redis.call('HGET', key.job(job.id), 'b') or '0 b 0')
  for _, id in ipairs(ids) do
    local other = id ~= job.id and load_job(id)
    if other and not FINAL[other.state] then
      local place = after.read_mark(redis.call('HGET', key.after(job.id), id) or '0w-')
      after.mark_awaited(other)
      left = left + after.link(job.id, reserve_arrivals(1) + 1, id, place, '-', 'r', true)
    end
  end
  return after.pack(left, policy, 0), left
end

-- A job that had ended begins anew: it waits again for those that are not as they must be. Returns their number.
function after.link_again(job, field)
  local _, policy = after.parse(field)
  after.forget_waits(job.id)
  local marks, left = redis.call('HGETALL', key.after(job.id)), 0
  for at = 1, #marks, 2 do
    left = left + (after.link_as_it_is(job.id, marks[at], marks[at + 1], policy))
  end
  redis.call('HSET', key.job(job.id), 'b', after.pack(left, policy, 0))
  return left
end

core.resolve_all, core.unlink, core.after = resolve_all, unlink, after
