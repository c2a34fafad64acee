-- globals: what every file of the library may use without importing it.
--
-- Each file is a scope of its own. What it offers to the files behind it stands in the table `core`; they import it into
-- locals, which are found faster than the entries of a table. A file that comes first reads `core` when it is called.

local core = {}

-- What the library uses most of Lua and of the server, as locals: a global is looked for in three tables each time. While the
-- library is loaded there are no others than `redis`, and of that one only what registers functions; so the first call fills
-- these in. See call.lua.
local function globals() return redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall end
local redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall = redis

-- The state of a call, set anew by each.
local now -- milliseconds
local meta = {} -- of the hash of that name, as it was when the call began
local markers = {} -- a field of it, of what is rarely there: see `set_sign`
local pending_events -- event type -> ids: see `collect`
local index_removals, index_additions, held_additions, held_removals -- key -> members (and scores, or values): see transitions.lua
local to_resolve -- jobs that ended in this call, of those that others wait for: id, letter, arrival of the last one told
local queues_to_wake -- queues in which there is work to wake somebody for, and queue -> true
local throughput_counts, known_queues -- see throughput.lua; queue -> true: it was known before this call
local budget -- how much more work of each kind this call may do for earlier ones
local call_failed -- whether anything but a refusal went wrong
local unreadable_timers -- due timers that stay, because this release cannot read their jobs
local full_limits -- limit -> true: its holders were checked in this call
local claim_in_progress -- its arguments and what it has claimed so far

local key = {} -- the names of keys: see keys.lua
