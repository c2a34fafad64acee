-- marks: what jobs are found by besides their queue and state: tags, a scope, a batch, and whether they are tracked.
--
-- A job with marks has the flag INDEXED, and the field `t` of its record names them, an entry a line: a letter and a name.
--
--   #tag      in the order in which they were given
--   /a/b      the scope, a path; the job is indexed under `/a` and `/a/b`
--   =batch    the batch that the job belongs to
--   $batch    the batch at whose end the job runs; no index
--   !         the job is tracked
--
-- An index is a sorted set of job ids. A catalogue lists indexes by their size: all tags, or the direct parts of a scope. Its
-- scores are set to the cardinality of each index at the end of a call that changed it, never counted up and down, so
-- nothing can make them drift.
--
-- The record is authoritative, as everywhere: an index entry without a record that names it is removed by `repair_some`, and
-- a missing one is added when the job is repaired.

local INDEXED, check_list, check_name = core.INDEXED, core.check_list, core.check_name
local collect, has, load_blob, pack_status = core.collect, core.has, core.load_blob, core.pack_status
local refuse, set_marker, store_blob, with = core.refuse, core.set_marker, core.store_blob, core.with
local MAX_TAG, MAX_TAGS_PER_JOB, MAX_TAGS = constants.MAX_TAG, constants.MAX_TAGS_PER_JOB, constants.MAX_TAGS
local MAX_SCOPE, MAX_SCOPE_DEPTH, MAX_MARKS = constants.MAX_SCOPE, constants.MAX_SCOPE_DEPTH, constants.MAX_MARKS
local MAX_NAME = constants.MAX_NAME

local OTHER = 'other' -- stands for a new tag when the namespace has too many
local MAX_GONE = 1000 -- deleted jobs that `tracked` still names

local marks = {}

-- Arguments

-- Whether a text is UTF-8, so that every client can read it.
local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then return true end
  for _, overlong in ipairs({ '\224[\128-\159]', '\237[\160-\191]', '\240[\128-\143]', '\244[\144-\191]' }) do
    if string.find(text, overlong) then return false end -- or half of a pair, or beyond the last character
  end
  local rest = string.gsub(text, '[\194-\223][\128-\191]', '.')
  rest = string.gsub(rest, '[\224-\239][\128-\191][\128-\191]', '.')
  rest = string.gsub(rest, '[\240-\244][\128-\191][\128-\191][\128-\191]', '.')
  return not string.find(rest, '[\128-\255]')
end

local function is_tag(text)
  return type(text) == 'string' and #text >= 1 and #text <= MAX_TAG and not string.find(text, '%c')
    and not string.find(text, '^ ') and not string.find(text, ' $') and is_utf8(text)
end

-- Check a list of tags. Returns them without duplicates.
function marks.check_tags(tags, min)
  local seen, list = {}, {}
  for _, tag in ipairs(check_list(tags, 'tags', min or 0)) do
    if not is_tag(tag) then
      refuse('INVALID', string.format('a tag must be 1 to %d bytes of UTF-8 without control characters, and without a space '
        .. 'at its ends, not %q', MAX_TAG, string.sub(tostring(tag), 1, 40)))
    end
    if not seen[tag] then seen[tag], list[#list + 1] = true, tag end
  end
  if #list > MAX_TAGS_PER_JOB then
    refuse('TOOBIG', string.format('a job can have at most %d tags', MAX_TAGS_PER_JOB))
  end
  return list
end

-- The paths that a scope is indexed under, or nil if it is not a scope: `/a/b` gives `/a` and `/a/b`.
local function paths_of(scope)
  local paths, path = {}, ''
  if #scope > MAX_SCOPE then return nil end
  for part in string.gmatch(scope, '/([%w._:@%-]+)') do
    path = path .. '/' .. part
    paths[#paths + 1] = path
  end
  return path == scope and #paths >= 1 and #paths <= MAX_SCOPE_DEPTH and paths or nil
end

function marks.check_scope(scope)
  if type(scope) ~= 'string' or not paths_of(scope) then
    refuse('INVALID', string.format('a scope must be a path such as /tenant/7, with 1 to %d parts of letters, digits or any of '
      .. '._:@- and at most %d characters, not %q', MAX_SCOPE_DEPTH, MAX_SCOPE, string.sub(tostring(scope), 1, 40)))
  end
  return scope
end

function marks.check_batch(name) return check_name(name, 'a batch', MAX_NAME, '%w_.:%-') end

-- The marks that the jobs of an enqueued batch get, or nil.
function marks.of_batch(batch)
  local tags = batch.tags and marks.check_tags(batch.tags) or {}
  if batch.scope then marks.check_scope(batch.scope) end
  if batch.batch then marks.check_batch(batch.batch) end
  if batch.ends then marks.check_batch(batch.ends) end
  if #tags == 0 and not (batch.scope or batch.batch or batch.ends) then return nil end
  return { tags = tags, scope = batch.scope, batch = batch.batch, ends = batch.ends }
end

-- Refuse a call that would add more entries to indexes than a call may.
function marks.check_total(batches)
  local entries = 0
  for _, batch in ipairs(batches) do
    local names = batch.marks
    if names then entries = entries + (#names.tags + (names.scope and #paths_of(names.scope) or 0)) * #batch.ids end
  end
  if entries > MAX_MARKS then
    refuse('TOOBIG', string.format('these jobs have %d tags and parts of scopes (limit %d): enqueue fewer jobs at once', entries,
      MAX_MARKS))
  end
end

-- Records

local function pack(names)
  local lines = {}
  for place, tag in ipairs(names.tags) do lines[place] = '#' .. tag end
  if names.scope then lines[#lines + 1] = names.scope end
  if names.batch then lines[#lines + 1] = '=' .. names.batch end
  if names.ends then lines[#lines + 1] = '$' .. names.ends end
  if names.tracked then lines[#lines + 1] = '!' end
  return table.concat(lines, '\n')
end

-- The text of a job's marks; '' if it is missing.
function marks.text(job)
  local field = redis.pcall('HGET', key.job(job.id), 't')
  return type(field) == 'string' and load_blob('m', job.id, field) or ''
end

-- The marks of a job with the flag INDEXED: { tags = list, scope, batch, ends, tracked }. What is damaged is left out.
function marks.read(job)
  local names = { tags = {}, tracked = false }
  for line in string.gmatch(marks.text(job), '[^\n]+') do
    local letter, name = string.sub(line, 1, 1), string.sub(line, 2)
    if letter == '#' and is_tag(name) and #names.tags < MAX_TAGS_PER_JOB then
      names.tags[#names.tags + 1] = name
    elseif letter == '/' and paths_of(line) then
      names.scope = line
    elseif letter == '=' and name ~= '' then
      names.batch = name
    elseif letter == '$' then
      names.ends = name
    elseif line == '!' then
      names.tracked = true
    end
  end
  return names
end

-- The marks of any job.
function marks.of(job)
  if has(job.flags, INDEXED) then return marks.read(job) end
  return { tags = {}, tracked = false }
end

function marks.has_tag(names, tag)
  for _, each in ipairs(names.tags) do
    if each == tag then return true end
  end
  return false
end

-- Whether a scope is this path or inside of it.
function marks.is_within(scope, path)
  return scope ~= nil and (scope == path or string.sub(scope, 1, #path + 1) == path .. '/')
end

-- Write the marks of an existing job into its record, and its flag; the caller writes the flag of a job without a state.
function marks.write(job, names)
  local text, record = pack(names), key.job(job.id)
  if not markers.marks then set_marker('marks', 1) end
  if has(job.flags, INDEXED) then redis.call('DEL', key.blob('m', job.id)) end -- the previous text may have been long
  if text ~= '' then redis.call('HSET', record, 't', store_blob('m', job.id, text)) else redis.call('HDEL', record, 't') end
  if has(job.flags, INDEXED) == (text ~= '') then return end
  job.flags = with(job.flags, INDEXED, text ~= '')
  if job.state then redis.call('HSET', record, 's', pack_status(job)) end
end

-- Indexes

-- Have the end of this call set the score of an index in its catalogue.
local function count_later(index, catalogue, member)
  changed_counts = changed_counts or {} -- index -> catalogue and member, the indexes, and the number of tags
  if not changed_counts[index] then
    changed_counts[index], changed_counts[#changed_counts + 1] = { catalogue, member }, index
  end
  return index
end

-- The index of a tag, or of a path. It is counted at the end of the call.
local function tag_index(tag)
  local index = key.tag(tag)
  if not (changed_counts and changed_counts[index]) then
    count_later(index, key.tags(), tag)
    changed_counts.tags = (changed_counts.tags or 0) + 1
  end
  return index
end

local function scope_index(path)
  local parent, part = string.match(path, '^(.*)/([^/]+)$')
  return count_later(key.scope(path), key.scopes(parent), part)
end

-- The indexes that tags and a scope lead to.
local function indexes_of(names)
  local list = {}
  for place, tag in ipairs(names.tags) do list[place] = tag_index(tag) end
  for _, path in ipairs(names.scope and paths_of(names.scope) or {}) do list[#list + 1] = scope_index(path) end
  return list
end

marks.tag_index, marks.scope_index = tag_index, scope_index

-- Set the scores of changed indexes in their catalogues. A catalogue that cannot be written is left to repair.
function marks.store_counts()
  local changed, additions, removals = changed_counts, {}, {}
  changed_counts = nil
  for place = 1, #changed do
    local index = changed[place]
    local catalogue, member, count = changed[index][1], changed[index][2], redis.pcall('ZCARD', index)
    if count == 0 then
      collect(removals, catalogue, member)
    elseif type(count) == 'number' then
      collect(additions, catalogue, count, member)
    end
  end
  core.apply_each('ZADD', additions)
  core.apply_each('ZREM', removals)
end

-- Replace new tags by OTHER if the namespace has too many. Tags of this call count as new, so near the limit a call with
-- many tags may reach it early.
function marks.limit_tags(tags)
  if #tags == 0 then return tags end
  local room = MAX_TAGS - redis.call('ZCARD', key.tags()) - (changed_counts and changed_counts.tags or 0)
  if #tags <= room then return tags end
  local list, seen = {}, {}
  for _, tag in ipairs(tags) do
    local is_known = changed_counts and changed_counts[key.tag(tag)] or redis.call('ZSCORE', key.tags(), tag)
    if not is_known then
      room = room - 1
      if room < 0 then tag = OTHER end
    end
    if not seen[tag] then seen[tag], list[#list + 1] = true, tag end
  end
  return list
end

-- Jobs

-- Prepare what the jobs of an enqueued batch have in common, for this call.
function marks.begin_batch(batch)
  local given = batch.marks
  if not markers.marks then set_marker('marks', 1) end
  local names = { tags = marks.limit_tags(given.tags), scope = given.scope, batch = given.batch, ends = given.ends }
  batch.marks_text, batch.mark_indexes = pack(names), indexes_of(names)
  if names.batch then batch.mark_indexes[#batch.mark_indexes + 1] = key.batch(names.batch) end
end

local function track_later(id)
  collect(index_additions, key.tracked(), now, id)
  collect(index_removals, key.untracked(), id)
end

-- A job of a batch is stored. Returns its field `t`. `is_tracked`: it replaces a tracked job.
function marks.insert(batch, id, is_tracked)
  local indexes, text = batch.mark_indexes or {}, batch.marks_text
  for place = 1, #indexes do collect(index_additions, indexes[place], now, id) end
  if batch.batch then core.batches.on_enqueue(batch.batch, id) end
  if is_tracked then
    track_later(id)
    text = text and text .. '\n!' or '!'
  end
  return store_blob('m', id, text)
end

-- Change the tags and the scope of an existing job. Tags that it gets are scored now, a scope by the time of enqueue.
function marks.change(job, before, names)
  local is_new = {}
  for _, index in ipairs(indexes_of(names)) do is_new[index] = true end
  for _, index in ipairs(indexes_of(before)) do
    if is_new[index] then is_new[index] = false else collect(index_removals, index, job.id) end
  end
  marks.write(job, names)
  for _, tag in ipairs(names.tags) do
    if is_new[key.tag(tag)] then collect(index_additions, key.tag(tag), now, job.id) end
  end
  for _, path in ipairs(names.scope and paths_of(names.scope) or {}) do
    if is_new[key.scope(path)] then collect(index_additions, key.scope(path), job.created, job.id) end
  end
end

-- The tags of a job, and more tags after them. Near the limit of the namespace, OTHER stands for new ones.
local function join_tags(tags, more)
  local list, seen, fresh = {}, {}, {}
  for place, tag in ipairs(tags) do list[place], seen[tag] = tag, true end
  for _, tag in ipairs(more) do
    if not seen[tag] then fresh[#fresh + 1] = tag end
  end
  for _, tag in ipairs(marks.limit_tags(fresh)) do
    if not seen[tag] then list[#list + 1] = tag end
  end
  return list
end

local function with_tags(names, tags)
  return { tags = tags, scope = names.scope, batch = names.batch, ends = names.ends, tracked = names.tracked }
end

-- The marks of a job that continues as another call: its tags unless `batch` has others, or after `keep_tags`, these and
-- those; its scope unless `batch` has one. Returns nil if it would have too many tags.
function marks.after_stage(names, batch)
  local tags = names.tags
  if batch.tags and batch.keep_tags then
    tags = join_tags(tags, batch.tags)
  elseif batch.tags then
    tags = marks.limit_tags(batch.tags)
  end
  if #tags > MAX_TAGS_PER_JOB then return nil end
  local wanted = with_tags(names, tags)
  wanted.scope = batch.scope or names.scope
  return wanted
end

-- The marks of a job without some tags, and with others after those that are left.
function marks.changed_tags(names, add, remove)
  local is_gone, left = {}, {}
  for _, tag in ipairs(remove) do is_gone[tag] = true end
  for _, tag in ipairs(names.tags) do
    if not is_gone[tag] then left[#left + 1] = tag end
  end
  return with_tags(names, join_tags(left, add))
end

-- Add tags to a job, or remove some. Returns the answer of `tag` and `untag`.
function marks.retag(job, add, remove)
  local names = marks.of(job)
  local wanted = marks.changed_tags(names, add, remove)
  if #wanted.tags > MAX_TAGS_PER_JOB then return 'TOOBIG' end
  if #wanted.tags == #names.tags then return 'SAME' end
  marks.change(job, names, wanted)
  return 'OK'
end

function marks.replace_tags(job, tags)
  local names = marks.of(job)
  marks.change(job, names, with_tags(names, marks.limit_tags(tags)))
end

function marks.track(job, names)
  names.tracked = true
  marks.write(job, names)
  track_later(job.id)
end

function marks.untrack(job, names)
  names.tracked = false
  marks.write(job, names)
  collect(index_removals, key.tracked(), job.id)
end

-- Remember the id of a tracked job that is gone; the last of these are kept.
function marks.remember_tracked(id)
  redis.pcall('ZADD', key.untracked(), now, id)
  redis.pcall('ZREMRANGEBYRANK', key.untracked(), 0, -1 - MAX_GONE)
end

-- Have a job leave an index, also if the same call has added it: additions are written last.
local function leave(index, id)
  local list = index_additions[index] or {}
  for place = #list, 2, -2 do
    if list[place] == id then
      table.remove(list, place)
      table.remove(list, place - 1)
    end
  end
  collect(index_removals, index, id)
end

-- A job is deleted: remove it from its indexes.
function marks.remove(job)
  local names = marks.read(job)
  for _, index in ipairs(indexes_of(names)) do leave(index, job.id) end
  if names.tracked then
    leave(key.tracked(), job.id)
    marks.remember_tracked(job.id)
  end
  if names.batch then leave(key.batch(names.batch), job.id) end
  redis.call('DEL', key.blob('m', job.id))
end

-- Repair

-- Call `visit(index, score)` for each index that a job should be in.
local function each_place(job, visit)
  local names = marks.read(job)
  for _, tag in ipairs(names.tags) do visit(tag_index(tag), job.since) end
  for _, path in ipairs(names.scope and paths_of(names.scope) or {}) do visit(scope_index(path), job.created) end
  if names.tracked then visit(key.tracked(), job.since) end
end

-- Whether a job is in all its indexes.
function marks.is_indexed(job)
  local is_there = true
  each_place(job, function(index) is_there = is_there and redis.call('ZSCORE', index, job.id) end)
  return is_there
end

-- Add a job to the indexes that it is missing from.
function marks.restore(job)
  each_place(job, function(index, score) redis.call('ZADD', index, 'NX', score, job.id) end)
end

core.marks = marks
