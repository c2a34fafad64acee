-- globals: what the library uses most of Lua and of the server, as locals.
--
-- A global is looked for in three tables each time, and a local in none. While the library is loaded there are no others than
-- `redis`, and of that one only what registers functions; so the first call fills these in. See call.lua.

local function globals() return redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall end
local redis, string, table, math, struct, type, tonumber, pairs, ipairs, next, unpack, pcall = redis
