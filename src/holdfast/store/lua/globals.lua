-- globals: names that every file of the library can use without importing them.
--
-- Each file is a scope of its own. It exports to later files through the table `core`; they import into locals, because
-- Lua reads a local faster than a table entry. A file that needs a later one reads `core` at call time.

local core = {}

-- Frequently used functions of Lua and of the server, as locals: a global costs lookups in three tables. While the
-- library is being loaded only `redis` exists, and only to register functions, so the first call fills these in. See
-- call.lua.
local function globals() return redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall end
local redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall = redis

-- State of the current call, reset at its beginning.
local now -- server time in milliseconds
local is_now_given -- whether the caller gave it, as tests and simulations do
local meta = {} -- fields of the hash `meta`, as they were when the call began
local markers = {} -- what needs attention; see `set_marker` in call.lua
local pending_events -- a list of event types, and type -> its jobs; see emit.lua
local caller -- who made the call, if it says so
local index_removals, index_additions, held_additions, held_removals -- key -> members (and scores or values), written by `flush` in transitions.lua
local changed_failures -- names of failures whose jobs have changed; see failures.lua
local member_changes -- kind and batch -> ids, written by `flush`; see batches.lua
local to_resolve -- ended jobs whose dependents must be resolved: id, state letter, arrival of the last dependent done
local queues_to_wake, queues_ready -- a list of queues with new work, and queue -> true
local arrival_counts, known_queues -- see throughput.lua; queue -> true if it existed before this call
local budget -- how much more work of each kind this call may do for earlier ones
local call_failed -- whether anything but a refusal went wrong
local unreadable_timers -- due timers that stay, because this release cannot read their jobs
local full_limits -- limit -> true: its holders were checked in this call
local changed_counts -- indexes whose size must be set in a catalogue at the end of the call; see marks.lua
local claim_in_progress -- its arguments and what it has claimed so far

local key = {} -- key names; see keys.lua
