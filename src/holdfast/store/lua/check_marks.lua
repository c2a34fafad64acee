-- check_marks: indexes of tags, scopes and tracked jobs, and lists of failures, have the jobs that the records name.

local INDEXED, check, collect, failures = core.INDEXED, core.check, core.collect, core.failures
local has, load_job, marks, set_marker = core.has, core.load_job, core.marks, core.set_marker
local find, removal, score = check.find, check.removal, check.score

local DAY = core.DAY

local function check_marker()
  if not markers.marks then find('marker', 'marks', function() set_marker('marks', 1) end) end
end

-- The size of an index in its catalogue. `recount` has the end of this repair set it.
local function check_size(what, index, catalogue, member, recount)
  if score(catalogue, member) ~= redis.call('ZCARD', index) then find('wrong_count', what, recount) end
end

local function split_path(path) return string.match(path, '^(.*)/([^/]+)$') end

-- An entry of an index: `test` says whether the marks of a job name it. `index` counts it again.
local function check_entry(what, id, index, test, removed)
  local job, fault = load_job(id)
  if not job and fault ~= 'NOTFOUND' then return end
  if job and has(job.flags, INDEXED) and test(marks.read(job)) then return job end
  find('stray_entry', what .. ' ' .. id, function()
    collect(index_removals, index(), id)
    if removed and not job then removed(id) end
  end)
end

check.kind('tag', { type = 'zset', name = 'tags and scopes', whole = function(tag, name)
  check_marker()
  check_size('tag:' .. tag, name, key.tags(), tag, function() marks.tag_index(tag) end)
end, entry = function(tag, _, id)
  check_entry('tag:' .. tag, id, function() return marks.tag_index(tag) end, function(names) return marks.has_tag(names, tag) end)
end })

check.kind('scope', { type = 'zset', name = 'tags and scopes', whole = function(path, name)
  local parent, part = split_path(path)
  if not parent then
    check.unknown(name)
    return false
  end
  check_marker()
  check_size('scope:' .. path, name, key.scopes(parent), part, function() marks.scope_index(path) end)
end, entry = function(path, name, id, time)
  local job = check_entry('scope:' .. path, id, function() return marks.scope_index(path) end, function(names)
    return marks.is_within(names.scope, path)
  end)
  if job and tonumber(time) ~= job.created then
    find('misplaced', 'scope:' .. path .. ' ' .. id, function() redis.call('ZADD', name, job.created, id) end)
  end
end })

-- Catalogues. An index that exists is compared with its catalogue when it is checked itself.
check.kind('tags', { type = 'zset', name = 'tags and scopes', single = true, entry = function(_, name, tag)
  if not check.exists(key.tag(tag)) then find('stray_entry', 'tags ' .. tag, removal('ZREM', name, tag)) end
end })

check.kind('scopes', { type = 'zset', name = 'tags and scopes', entry = function(parent, name, part)
  if not check.exists(key.scope(parent .. '/' .. part)) then
    find('stray_entry', 'scopes:' .. parent .. ' ' .. part, removal('ZREM', name, part))
  end
end })

check.kind('tracked', { type = 'zset', name = 'tags and scopes', single = true, whole = check_marker, entry = function(_, _, id)
  check_entry('tracked', id, key.tracked, function(names) return names.tracked end, marks.remember_tracked)
end })

check.kind('untracked', { type = 'zset', name = 'tags and scopes', single = true, entry = function(_, name, id)
  if score(key.tracked(), id) then find('stray_entry', 'untracked ' .. id, removal('ZREM', name, id)) end
end })

-- Failures

local function set_name(kind, name)
  return function() failures.set_name(kind, name) end
end

local function check_name(kind, name)
  local newest = redis.call('ZRANGE', key.failed_by(kind, name), -1, -1, 'WITHSCORES')
  if newest[1] and score(key.failed_names(kind), name) == tonumber(newest[2]) then return end
  find('wrong_count', 'failed:' .. kind .. ' ' .. name, set_name(kind, name))
end

-- Whether a job is listed under `other` alone, although the marker of these lists does not say so.
local function has_lost_marker(kind, name, id, job, own)
  return name == failures.OTHER and job.state == 'failed' and own and own ~= name and not failures.is_capped(kind)
    and not score(key.failed_by(kind, own), id)
end

-- Whether a job belongs to a list. Beyond the maximum number of names, some are listed under `other`.
local function belongs(kind, name, id, job, group, fingerprint)
  if job.state ~= 'failed' then return false end
  local own = ({ g = group, p = fingerprint, t = job.task })[kind]
  if own == name then return true end
  return own and name == failures.OTHER and failures.is_capped(kind) and not score(key.failed_by(kind, own), id)
end

local function failed_kind(kind)
  check.kind('f' .. kind, { type = 'zset', name = 'failures', whole = function(name) check_name(kind, name) end,
    entry = function(name, where, id, time)
      local job, group, fingerprint = load_job(id, 'g', 'v')
      if not job and group ~= 'NOTFOUND' then return end
      if job and has_lost_marker(kind, name, id, job, ({ g = group, p = fingerprint, t = job.task })[kind]) then
        return find('marker', 'other ' .. kind, function() set_marker('other', (markers.other or '') .. kind) end)
      end
      if not job or not belongs(kind, name, id, job, group, fingerprint) then
        return find('stray_entry', 'f' .. kind .. ':' .. name .. ' ' .. id, function() failures.take_out(kind, name, id) end)
      end
      if tonumber(time) == job.since then return end
      find('misplaced', 'f' .. kind .. ':' .. name .. ' ' .. id, function()
        redis.call('ZADD', where, job.since, id)
        failures.set_name(kind, name)
      end)
    end })
end

failed_kind('g')
failed_kind('p')
failed_kind('t')

check.kind('failed', { type = 'zset', name = 'failures', entry = function(kind, name, member)
  if kind ~= 'g' and kind ~= 'p' and kind ~= 't' then return check.unknown(name) end
  if not check.exists(key.failed_by(kind, member)) then
    find('stray_entry', 'failed:' .. kind .. ' ' .. member, set_name(kind, member))
  end
end })

local FINGERPRINT = { 'type', 'place', 'task', 'first', 'last', 'errors', 'job', 'at' }

check.kind('fi', { type = 'hash', name = 'failures', ttl = DAY, whole = function(name, where)
  local values = redis.call('HMGET', where, unpack(FINGERPRINT))
  for place = 1, #FINGERPRINT do
    if not values[place] then return find('damaged_value', 'fi:' .. name, check.deletion(where)) end
  end
  if score(key.fingerprints(), name) then return end
  find('unlisted', 'fi:' .. name, function() redis.call('ZADD', key.fingerprints(), tonumber(values[8]) or now, name) end)
end })

check.kind('fingerprints', { type = 'zset', name = 'failures', single = true })
