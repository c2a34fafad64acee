-- mark_repair: make indexes of marks agree with the records, a random sample at a time.
--
-- An index of marks is never behind its records, unless keys were lost or written by others: a job whose field `t` is damaged
-- leaves its entries behind. Once a second, calls that advance time look at some tags, one path of scopes and some tracked
-- jobs. Entries that no record names are removed, and the sizes in the catalogues are set again. Entries that are missing
-- are found by `repair`, at the job.

local INDEXED, collect, flush, has = core.INDEXED, core.collect, core.flush, core.has
local load_job, marks, set_marker = core.load_job, core.marks, core.set_marker

local TAGS, SAMPLE, SAMPLES = 5, 5, 20 -- tags at once, entries per sample, samples per index

-- Whether a record names this entry, or cannot be read here.
local function is_named(id, test)
  local job, fault = load_job(id)
  if not job then return fault ~= 'NOTFOUND', job end
  return has(job.flags, INDEXED) and test(marks.read(job)), job
end

-- Remove wrong entries of an index; where one is wrong, others may be.
local function repair_index(index, test, removed)
  for _ = 1, SAMPLES do
    local is_clean = true
    for _, id in ipairs(redis.call('ZRANDMEMBER', index, SAMPLE)) do
      local is_right, job = is_named(id, test)
      if not is_right then
        is_clean = false
        collect(index_removals, index, id)
        if removed then removed(id, job) end
      end
    end
    flush()
    if is_clean then return end
  end
end

local function repair_tags()
  for _, tag in ipairs(redis.call('ZRANDMEMBER', key.tags(), TAGS)) do
    repair_index(marks.tag_index(tag), function(names) return marks.has_tag(names, tag) end)
  end
end

-- Go down a random path from the root.
local function repair_scopes()
  local path, part = '', redis.call('ZRANDMEMBER', key.scopes(''))
  for _ = 1, constants.MAX_SCOPE_DEPTH do
    if not part then return end
    path = path .. '/' .. part
    local here = path
    repair_index(marks.scope_index(here), function(names) return marks.is_within(names.scope, here) end)
    part = redis.call('ZRANDMEMBER', key.scopes(here))
  end
end

local function repair_tracked()
  repair_index(key.tracked(), function(names) return names.tracked end, function(id, job)
    if not job then marks.remember_tracked(id) end
  end)
end

-- The marker is set by the first job with marks, and removed when no job has any.
local function repair_marks()
  if not markers.marks then return end
  repair_tags()
  repair_scopes()
  repair_tracked()
  if changed_counts then return end -- this call has still to write catalogues
  if redis.call('EXISTS', key.tags(), key.scopes(''), key.tracked()) == 0 then set_marker('marks', nil) end
end

core.repair_marks = repair_marks
