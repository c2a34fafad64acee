-- log: the output and resource usage of attempts.
--
-- Output may arrive after its job has ended or restarted. It belongs to an attempt and does not affect the job, so writing it
-- needs no lease. It is stored in blocks of 8 KiB, numbered from 0: the first 8 and the last 24 of each of the last 10
-- attempts. A block is always sent whole, again as it grows; sending it twice changes nothing.
--
--   log(blocks), blobs     a list of: id, when the job was created, attempt, block (-1: resource usage, as the worker encodes
--                          it); and their bytes. Returns for each: OK, NOTFOUND or INVALID
--   logs(id, attempt, block)   the blocks of an attempt (default: the last that has any) from this one (0). Errors: NOTFOUND.
--                          Returns: attempt, whether it has ended, the attempts that have output, and a list of block,
--                          bytes, block, bytes ... in order
--
--   log   hash per job: `<attempt> <block>` -> bytes

local check_id, check_integer, check_list = core.check_id, core.check_integer, core.check_list
local check_optional, load_job, mark_extra = core.check_optional, core.load_job, core.mark_extra
local register, require_job = core.register, core.require_job

local BLOCK_SIZE, HEAD, TAIL = constants.LOG_BLOCK, constants.LOG_HEAD, constants.LOG_TAIL
local ATTEMPTS, USAGE_BLOCK = 10, constants.USAGE_BLOCK

local function field_of(attempt, block) return string.format('%d %d', attempt, block) end

local function parse_field(field)
  local attempt, block = string.match(field, '^(%d+) (-?%d+)$')
  return tonumber(attempt), tonumber(block)
end

-- After a new block: delete those between head and tail, and those of old attempts.
local function trim_log(id, attempt, block)
  local old = {}
  for _, field in ipairs(redis.call('HKEYS', key.log(id))) do
    local its, number = parse_field(field)
    local is_between = its == attempt and number >= HEAD and number <= block - TAIL
    if is_between or its <= attempt - ATTEMPTS then old[#old + 1] = field end
  end
  if #old > 0 then redis.call('HDEL', key.log(id), unpack(old)) end
end

local function store_block(id, created, attempt, block, bytes)
  local job = load_job(id)
  if not job or job.created ~= created or attempt > job.attempt or attempt <= job.attempt - ATTEMPTS then return 'NOTFOUND' end
  local field = field_of(attempt, block)
  local known = redis.call('HSTRLEN', key.log(id), field)
  if block ~= USAGE_BLOCK and known > #bytes then return 'OK' end
  redis.call('HSET', key.log(id), field, bytes)
  mark_extra(job)
  if known == 0 then trim_log(id, attempt, block) end
  return 'OK'
end

-- Check all blocks before any is stored. One that is too long gets its own answer.
local function check_blocks(blocks)
  for place = 1, #check_list(blocks, 'blocks'), 4 do
    check_id(blocks[place])
    check_integer(blocks[place + 2], 'the attempt', 1, 2 ^ 31)
    check_integer(blocks[place + 3], 'the block', USAGE_BLOCK, 2 ^ 40)
  end
end

register('log', {}, function(args, blobs)
  local answers, blocks = {}, args.blocks
  check_blocks(blocks)
  for place = 1, #blocks, 4 do
    local id, created, attempt, block = unpack(blocks, place, place + 3)
    local bytes = blobs[(place + 3) / 4 + 1]
    local is_right = bytes and #bytes > 0 and #bytes <= BLOCK_SIZE
    answers[#answers + 1] = is_right and store_block(id, created, attempt, block, bytes) or 'INVALID'
  end
  return answers
end)

-- Parse the fields of a log: the chosen attempt, the attempts that have output, and the blocks of the chosen one.
local function read_log(id, wanted, from)
  local printed, blocks, last = {}, {}, 0
  local fields = redis.call('HKEYS', key.log(id))
  for _, field in ipairs(fields) do
    local attempt, block = parse_field(field)
    last = math.max(last, attempt)
    if block ~= USAGE_BLOCK then printed[attempt] = true end
  end
  local list = {}
  for attempt in pairs(printed) do list[#list + 1] = attempt end
  table.sort(list)
  local chosen = wanted or last
  for _, field in ipairs(fields) do
    local attempt, block = parse_field(field)
    if attempt == chosen and (block >= from or block == USAGE_BLOCK) then blocks[#blocks + 1] = block end
  end
  table.sort(blocks)
  return chosen, list, blocks
end

register('logs', { 'no-writes' }, function(args)
  local job = require_job(check_id(args.id))
  check_optional(args.attempt, 'the attempt', 1, 2 ^ 31)
  local chosen, attempts, blocks = read_log(args.id, args.attempt, check_integer(args.block or 0, 'the block', 0, 2 ^ 40))
  local reply = { chosen, (job.state ~= 'running' or chosen ~= job.attempt) and 1 or 0, attempts, {} }
  for _, block in ipairs(blocks) do
    local parts = reply[4]
    parts[#parts + 1], parts[#parts + 2] = block, redis.call('HGET', key.log(args.id), field_of(chosen, block))
  end
  return reply
end)
