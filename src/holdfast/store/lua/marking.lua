-- marking: tag and track jobs, and read by what jobs are found. See marks.lua.
--
--   tag(ids, tags)   untag(ids, tags)   add tags to jobs, or remove them. An answer per id: OK; SAME: nothing to change; TOOBIG:
--                                       the job would have too many tags; NOTFOUND, NEWER, DAMAGED
--   track(ids)       untrack(ids)       an answer per id: OK, SAME, NOTFOUND, NEWER, DAMAGED; TOOBIG: too many are tracked. A
--                                       deleted job that `tracked` names can be untracked
--   tags(names)                         the number of jobs with each of these tags
--   tags(limit, skip, min)              the number of tags; then tag, number of jobs, tag ...: those with at least `min` jobs (1),
--                                       the most used first, up to 1,000 (100), after `skip` others
--   scopes(scope, limit, skip, min)     the number of parts directly inside a scope (default: of all); then path, number of jobs,
--                                       path ... likewise
--   tracked(limit, skip)                the number of tracked jobs; a list of their ids, those tracked last first; and a list of
--                                       deleted jobs that were tracked, those deleted last first
--
-- Errors: INVALID; TOOBIG: tags times jobs are more than a call may change.

local action, check_action, check_integer = core.action, core.check_action, core.check_integer
local check_list, emit, load_job, marks = core.check_list, core.emit, core.load_job, core.marks
local refuse, register, register_action = core.refuse, core.register, core.register_action
local DEFAULT_PAGE, MAX_BATCH = constants.DEFAULT_PAGE, constants.MAX_BATCH

function check_action.tag(args)
  args.tags = marks.check_tags(args.tags, 1)
  local entries = #args.tags * #(args.ids or {})
  if entries > constants.MAX_MARKS then
    refuse('TOOBIG', string.format('%d tags of jobs would change (limit %d): name fewer jobs at once', entries, constants.MAX_MARKS))
  end
end
check_action.untag = check_action.tag

function action.tag(id, args)
  local job, fault = load_job(id)
  if not job then return fault end
  return marks.retag(job, args.tags, {})
end

function action.untag(id, args)
  local job, fault = load_job(id)
  if not job then return fault end
  return marks.retag(job, {}, args.tags)
end

function action.track(id)
  local job, fault = load_job(id)
  if not job then return fault end
  local names = marks.of(job)
  if names.tracked then return 'SAME' end
  if redis.call('ZCARD', key.tracked()) >= constants.MAX_TRACKED then return 'TOOBIG' end
  marks.track(job, names)
  emit('tracked', job)
  return 'OK'
end

function action.untrack(id)
  local job, fault = load_job(id)
  if not job then
    local was_tracked = fault == 'NOTFOUND' and redis.call('ZREM', key.untracked(), id) == 1
    return was_tracked and 'OK' or fault
  end
  local names = marks.of(job)
  if not names.tracked then return 'SAME' end
  emit('untracked', job) -- before, so that the event has the mark
  marks.untrack(job, names)
  return 'OK'
end

register_action('tag', {})
register_action('untag', { 'allow-oom' })
register_action('track', {})
register_action('untrack', { 'allow-oom' })

-- Check the arguments of a page. Returns the first and the last place, and the least number of jobs.
local function check_page(args)
  local limit = check_integer(args.limit or DEFAULT_PAGE, 'the limit', 1, MAX_BATCH)
  return limit, check_integer(args.skip or 0, '`skip`', 0, 2 ^ 31), check_integer(args.min or 1, '`min`', 1, 2 ^ 31)
end

-- A page of a catalogue: its size, then name and number of jobs. `prefix` is put before each name.
local function read_catalogue(catalogue, args, prefix)
  local limit, skip, min = check_page(args)
  local rows = redis.call('ZREVRANGEBYSCORE', catalogue, '+inf', min, 'WITHSCORES', 'LIMIT', skip, limit)
  local reply = { redis.call('ZCOUNT', catalogue, min, '+inf') }
  for place = 1, #rows, 2 do reply[place + 1], reply[place + 2] = prefix .. rows[place], tonumber(rows[place + 1]) end
  return reply
end

register('tags', { 'no-writes' }, function(args)
  if not args.names then return read_catalogue(key.tags(), args, '') end
  local counts = {}
  for place, tag in ipairs(check_list(args.names, 'names')) do
    marks.check_tags({ tag })
    counts[place] = redis.call('ZCARD', key.tag(tag))
  end
  return counts
end)

register('scopes', { 'no-writes' }, function(args)
  local scope = args.scope and marks.check_scope(args.scope) or ''
  return read_catalogue(key.scopes(scope), args, scope .. '/')
end)

register('tracked', { 'no-writes' }, function(args)
  local limit, skip = check_page(args)
  return { redis.call('ZCARD', key.tracked()), redis.call('ZREVRANGE', key.tracked(), skip, skip + limit - 1),
    redis.call('ZREVRANGE', key.untracked(), 0, -1) }
end)
