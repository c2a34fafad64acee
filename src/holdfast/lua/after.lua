-- after: jobs that wait for others to end.
--
-- A blocked job has a hash of the jobs that it waits for: id -> its place in the list, and a letter: `-` if it has not ended,
-- else S, F or C. The field `b` of its record says how many of them are not as they must be, what to do if one fails or is
-- cancelled (b: stay blocked, c: be cancelled, r: run all the same), and when the job is due. Each job that others wait for
-- has the flag AWAITED, and a sorted set of these, by arrival.
--
-- Who ends a job resolves those that wait for it, up to 1,000 in one call; `settle` does it. The rest is noted in a hash,
-- job -> its letter and the arrival of the last one done, and continued by whoever moves time on.

local after = {}

after.LETTER_OF_POLICY = { block = 'b', cancel = 'c', run = 'r' }
after.LETTER_OF_FINAL = { succeeded = 'S', failed = 'F', cancelled = 'C' }
after.WORD_OF = { ['-'] = 'pending', S = 'succeeded', F = 'failed', C = 'cancelled' }
local RESOLVED_AT_ONCE = 1000

function after.letter_of(job) return after.LETTER_OF_FINAL[job.state] or '-' end

function after.satisfies(letter, policy) return letter == 'S' or (policy == 'r' and letter ~= '-') end

function after.parse(field)
  local left, policy, due = string.match(field, '^(%d+) (%l) (%d+)$')
  return tonumber(left), policy, tonumber(due)
end

function after.pack(left, policy, due) return string.format('%d %s %.0f', left, policy, due) end

function after.to_blocked(job, fields) move(job, 'blocked', now, nil, fields) end

-- All of those that a job waits for are as they must be.
function after.unblock(job, due)
  arrive(job)
  if due > now then to_scheduled(job, due) else to_waiting(job) end
  awakened[job.queue] = true
  event('unblocked', job.id)
end

-- Note on a job that it is awaited, so that its end looks for those that wait.
function after.mark_awaited(job)
  if has(job.flags, AWAITED) then return end
  job.flags = with(job.flags, AWAITED, true)
  redis.call('HSET', key.job(job.id), 's', pack_status(job))
end

-- A blocked job ends: nobody has to tell it of anything any more.
unlink = function(job)
  local marks = redis.call('HGETALL', key.after(job.id))
  for place = 1, #marks, 2 do redis.call('ZREM', key.dependents(marks[place]), job.id) end
end

-- One job of which another waits has ended, or begun again.
function after.resolve_one(id, ended, letter)
  local job, field = load_job(id, 'b')
  local place, before = string.match(redis.call('HGET', key.after(id), ended) or '', '^(%d+)(.)$')
  if not job or job.state ~= 'blocked' or not place then return redis.call('ZREM', key.dependents(ended), id) end
  local left, policy, due = after.parse(field)
  redis.call('HSET', key.after(id), ended, place .. letter)
  local is_satisfied = after.satisfies(letter, policy)
  if is_satisfied then redis.call('ZREM', key.dependents(ended), id) end
  if is_satisfied and not after.satisfies(before, policy) then left = left - 1 end
  redis.call('HSET', key.job(id), 'b', after.pack(left, policy, due))
  if left == 0 then return after.unblock(job, due) end
  if policy == 'c' and letter ~= '-' and not is_satisfied then
    note(job, 'C', 'job ' .. ended .. ' ' .. after.WORD_OF[letter])
    conclude(job, 'cancelled')
  end
end

-- Resolve some of those that wait for an ended job. Returns the arrival of the last one, or nothing if all are done.
function after.resolve_some(ended, letter, from, most)
  local list = redis.call('ZRANGEBYSCORE', key.dependents(ended), '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for place = 1, #list, 2 do after.resolve_one(list[place], ended, letter) end
  return #list == 2 * most and list[#list] or nil, #list / 2
end

function after.note_rest(ended, letter, from)
  redis.call('HSET', key.resolving(), ended, letter .. ' ' .. from)
  redis.call('HSET', key.meta(), 'resolving', 1)
end

-- All that ended in this call, and what that ends in turn; each job moves once at most.
resolve_all = function()
  local left, at = RESOLVED_AT_ONCE, 1
  while at <= #resolved do
    local ended, letter, from = unpack(resolved[at])
    local rest, count
    if left > 0 then rest, count = after.resolve_some(ended, letter, from, left) else rest, count = from, 0 end
    left = left - count
    if rest then after.note_rest(ended, letter, rest) end
    at = at + 1
  end
  resolved = {}
end

-- Whoever moves time on continues what was left.
function after.go_on()
  if not meta.resolving then return end
  local list = redis.call('HGETALL', key.resolving())
  if #list == 0 then return redis.call('HDEL', key.meta(), 'resolving') end
  for place = 1, math.min(#list, 20), 2 do
    local letter, from = string.match(list[place + 1], '^(.) (%S+)$')
    local job = load_job(list[place])
    redis.call('HDEL', key.resolving(), list[place])
    if not job or after.letter_of(job) == letter then resolved[#resolved + 1] = { list[place], letter, from } end
  end
  settle()
end

-- Have a job wait for one more, which is there or is stored in the same call. Returns 1 if it is not as it must be, else 0.
function after.link(id, arrival, dependency, place, letter, policy)
  redis.call('HSET', key.after(id), dependency, place .. letter)
  if after.satisfies(letter, policy) then return 0 end
  redis.call('ZADD', key.dependents(dependency), arrival, id)
  return 1
end

-- A job that had ended begins anew: it waits again for those that are not as they must be. Returns their number.
function after.link_again(job, field)
  local _, policy = after.parse(field)
  local marks, left = redis.call('HGETALL', key.after(job.id)), 0
  for at = 1, #marks, 2 do
    local place, letter = string.match(marks[at + 1], '^(%d+)(.)$')
    local dependency = load_job(marks[at])
    if dependency then
      letter = after.letter_of(dependency)
      after.mark_awaited(dependency)
    end
    left = left + after.link(job.id, reserve_arrivals(1) + 1, marks[at], place, letter, policy)
  end
  redis.call('HSET', key.job(job.id), 'b', after.pack(left, policy, 0))
  return left
end
