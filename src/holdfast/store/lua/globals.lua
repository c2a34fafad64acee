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
local signs = {} -- a field of it, of what is rarely there: see `set_sign`
local happened -- event type -> ids: see `collect`
local leaving, entering, holding, dropping -- key -> members (and scores, or values): see move.lua
local resolved -- jobs that ended in this call, of those that others wait for: id, letter, arrival of the last one told
local awakened -- queues in which there is work to wake somebody for, and queue -> true
local tallied, familiar -- see tally.lua; queue -> true: it was known before this call
local budget -- how much more a call may do of what it finds left to do

local key = {} -- the names of keys: see keys.lua
