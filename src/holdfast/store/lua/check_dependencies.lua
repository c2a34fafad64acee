-- check_dependencies: a blocked job and those that it waits for know of each other, and an end is never missed.
--
-- Dependents that earlier calls have still to resolve (`resolving`) are left alone. A job must not run before a dependency has
-- ended, so if its count is higher than what it knows of, dependencies are taken to be lost: they are restored from the other
-- side, and a count is lowered only after a whole pass that has not found them.

local AFTER, AWAITED, FINAL, has = core.AFTER, core.AWAITED, core.FINAL, core.has
local check, dependencies, load_job = core.check, core.dependencies, core.load_job
local pack_status, set_marker, with = core.pack_status, core.set_marker, core.with
local find, removal, repair_job, score = check.find, check.removal, check.repair_job, check.score

-- A pending or unmet dependency of a blocked job. One that ended, is gone, and was replaced by another job with its id does
-- not concern the dependent.
local function check_unmet(job, other_id, letter)
  if dependencies.is_resolving(other_id) then return end
  local other, fault = load_job(other_id)
  if not other and fault ~= 'NOTFOUND' then return end
  local is_dependent = score(key.dependents(other_id), job.id)
  if letter ~= '-' and not is_dependent then return end
  local state = other and dependencies.state_letter(other) or 'C'
  if not other and letter ~= '-' then return end
  if letter ~= state then
    return find('dependency_missed', job.id .. ' ' .. other_id, function()
      if letter == '-' then dependencies.resolve_missed(job.id, other_id) else dependencies.resolve(job.id, other_id, state) end
    end)
  end
  if is_dependent then return end
  find('not_dependent', job.id .. ' ' .. other_id, function()
    redis.call('ZADD', key.dependents(other_id), job.arrival, job.id)
    dependencies.mark_awaited(other)
  end)
end

local function write_count(job, left, policy, due)
  redis.call('HSET', key.job(job.id), 'b', dependencies.pack_field(left, policy, due))
end

-- A fix that gives up what the pass before could not restore; nil in the first pass.
local function give_up(fix) return check.step().is_again and fix or nil end

local function check_count(job, field, unmet)
  local left, policy, due = dependencies.parse_field(field)
  if job.state == 'blocked' and unmet == 0 then
    local function unblock()
      write_count(job, 0, policy, due)
      dependencies.unblock(job, due)
    end
    return find('blocked_wrongly', job.id, left == 0 and unblock or give_up(unblock))
  end
  if left == unmet then return end
  local function count() write_count(job, unmet, policy, due) end
  find('dependency_count', job.id, left < unmet and count or give_up(count))
end

-- The dependencies of a job, from its record.
function check.dependencies(job, fields)
  if FINAL[job.state] or not (fields.b or has(job.flags, AFTER)) then return end
  local edges, unmet = check.read({}, 'HGETALL', key.after(job.id)), 0
  local _, policy = dependencies.parse_field(fields.b)
  if #edges == 0 then
    if job.state ~= 'blocked' then return end
    return find('dependencies_lost', job.id, policy ~= 'b' and give_up(function() dependencies.resolve_without_edges(job) end) or nil)
  end
  check.spend(#edges / 4)
  local step = check.step()
  for place = 1, #edges, 2 do
    local _, letter, own = dependencies.parse_edge(edges[place + 1], policy)
    if not dependencies.satisfies(letter, own) then
      unmet = unmet + 1
      if job.state == 'blocked' then check_unmet(job, edges[place], letter) end
      if step.has_repaired then return end -- the job may have been unblocked
    end
  end
  check_count(job, fields.b, unmet)
end

check.kind('a', { type = 'hash', name = 'dependencies', each = true, whole = function(id, name)
  local is_gone, job = check.is_gone(id)
  if is_gone then return find('orphan', 'a:' .. id, check.deletion(name)) end
  if not job or has(job.flags, AFTER) then return end
  find('flags', id, function()
    job.flags = with(job.flags, AFTER, true)
    redis.call('HSET', key.job(id), 's', pack_status(job))
  end)
end })

-- Whether a job still waits for another; and the job, and the field of its count, if it is blocked and does not know the other.
local function waits_for(id, other_id)
  local job, field = load_job(id, 'b')
  if not job then return field ~= 'NOTFOUND' end
  if job.state ~= 'blocked' then return false end
  local edge = check.read(false, 'HGET', key.after(id), other_id)
  if not edge then return false, job, field end
  local _, policy = dependencies.parse_field(field)
  local _, letter, own = dependencies.parse_edge(edge, policy)
  return not dependencies.satisfies(letter, own)
end

local function lost_place(job, field)
  local edges = check.read({}, 'HGETALL', key.after(job.id))
  check.spend(#edges / 4)
  return dependencies.lost_place(job, field, edges)
end

-- An entry that its dependent does not confirm.
local function check_dependent(id, name, dependent)
  local is_waiting, job, field = waits_for(dependent, id)
  if is_waiting then return end
  local place = job and lost_place(job, field)
  if not place then return find('stray_entry', 'd:' .. id .. ' ' .. dependent, removal('ZREM', name, dependent)) end
  find('dependency_lost', dependent .. ' ' .. id, function()
    redis.call('HSET', key.after(dependent), id, dependencies.pack_edge(place, '-'))
  end)
end

check.kind('d', { type = 'zset', name = 'dependencies', each = true, whole = function(id)
  if dependencies.is_resolving(id) then return false end
  local is_gone, job = check.is_gone(id)
  if is_gone then
    find('dependency_missed', 'd:' .. id, repair_job(id))
    return false
  end
  if not job or has(job.flags, AWAITED) then return end
  find('flags', id, function() dependencies.mark_awaited(job) end)
end, entry = check_dependent })

check.kind('resolving', { type = 'hash', name = 'dependencies', single = true, whole = function()
  if not markers.resolving then find('marker', 'resolving', function() set_marker('resolving', 1) end) end
end, entry = function(_, name, id, position)
  if string.find(position, '^[SFC%-] %S+$') then return end
  find('damaged_value', 'resolving ' .. id, removal('HDEL', name, id))
end })

check.kind('outcomes', { type = 'zset', name = 'dependencies', single = true, ttl = 30 * core.DAY, whole = function()
  if not markers.outcomes then find('marker', 'outcomes', function() set_marker('outcomes', 1) end) end
end, entry = function(_, name, id, number)
  local outcome = tonumber(number) % 4
  if outcome ~= 1 and outcome ~= 2 and outcome ~= 3 then
    find('damaged_value', 'outcomes ' .. id, removal('ZREM', name, id))
  elseif check.exists(key.job(id)) then
    find('stray_entry', 'outcomes ' .. id, removal('ZREM', name, id))
  end
end })
