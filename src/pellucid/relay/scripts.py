"""Lua scripts for Redis. Each one runs atomically.

Keys, after the relay's prefix:

    log:NAME     stream: entries `N-BORN` with N = 1, 2, 3 … and the field `d`; a last one with the field `z` is the
                 end. BORN distinguishes a log from an earlier log of the same name that Redis has lost
    box:NAME     stream: the signals to a name, numbered like a log; it has no end, and the oldest are dropped
    mark:NAME    hash: the fencing token of the writer (`fence`), the holder of the lease (`holder`), the number of
                 entries (`count`), whether the log has `ended`
    leases       sorted set: names, by the time when their lease expires
    bucket:NAME  hash: counter to level and time
    hold:NAME    sorted set: holders of slots, by the time when their slot expires
    roll:NAME    sorted set: members that are present, by the time when they expire

The key of a stream is also the channel on which its newest number is published. Times are Redis's own, in microseconds.
A fencing token is at least the time of its claim, so tokens increase even after Redis has lost its data.
"""

from __future__ import annotations

from hashlib import sha1


class Script:
    """A Lua script, and its SHA-1 hash for `EVALSHA`."""

    def __init__(self, text: str) -> None:
        self.text = _NOW + text if "now()" in text else text
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_NOW = """
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
local function whole(number) return string.format('%.0f', number) end
"""

APPEND = Script("""
local life, spare = ARGV[1], ARGV[2]
local function append(log, mark, fence, after, last, first, many)
  local known = redis.call('HMGET', mark, 'fence', 'count', 'born', 'ended')
  if fence > 0 and not known[1] then return 'lost' end
  if fence < tonumber(known[1] or '0') then return 'fenced' end
  local count, born, ended = tonumber(known[2] or '0'), known[3], known[4] or '0'
  if born and redis.call('EXISTS', log) == 0 then return 'lost' end
  if after >= 0 and after ~= count then
    if after + many == count and ended == last then return count end
    return 'other'
  end
  if ended == '1' then return 'fenced' end
  if many == 0 and last == '0' then return count end
  born = born or whole(now())
  for i = first, first + many - 1 do
    count = count + 1
    redis.call('XADD', log, count .. '-' .. born, 'd', ARGV[i])
  end
  local newest = count
  if last == '1' then
    newest = count + 1
    redis.call('XADD', log, newest .. '-' .. born, 'z', '')
  end
  redis.call('HSET', mark, 'fence', whole(fence), 'count', count, 'born', born, 'ended', last)
  redis.call('EXPIRE', log, life)
  redis.call('EXPIRE', mark, life + spare)
  redis.call('PUBLISH', log, newest .. '-' .. born)
  return count
end
local said, at = {}, 3
for i = 1, #KEYS, 2 do
  local fence, after, last, many = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 3])
  local done, what = pcall(append, KEYS[i], KEYS[i + 1], fence, after, last, at + 4, many)
  if not done and type(what) ~= 'table' then what = {err = what} end
  table.insert(said, what)
  at = at + 4 + many
end
return said
""")

DROP = Script("""
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 1 then redis.call('PEXPIRE', KEYS[2], ARGV[1] + ARGV[2]) end
return 'ok'
""")

CLAIM = Script("""
local mark, leases = KEYS[1], KEYS[2]
local name, holder, time, lapsed, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now()
local ends = redis.call('ZSCORE', leases, name)
local free = not ends or tonumber(ends) <= now
if lapsed == '1' and (not ends or not free) then return false end
if not free and redis.call('HGET', mark, 'holder') ~= holder then return false end
local fence = math.max(now, tonumber(redis.call('HGET', mark, 'fence') or '0') + 1)
redis.call('HSET', mark, 'fence', whole(fence), 'holder', holder)
redis.call('PEXPIRE', mark, whole(math.max(tonumber(life), time / 1000) + time / 1000))
redis.call('ZADD', leases, whole(now + time), name)
return fence
""")

RENEW = Script("""
local mark, leases = KEYS[1], KEYS[2]
local name, token, time, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', mark, 'fence') ~= token or not redis.call('ZSCORE', leases, name) then return 0 end
redis.call('PEXPIRE', mark, whole(tonumber(life) + time / 1000))
redis.call('ZADD', leases, whole(now() + time), name)
return 1
""")

RELEASE = Script("""
if redis.call('HGET', KEYS[1], 'fence') == ARGV[2] then
  redis.call('HDEL', KEYS[1], 'holder')
  redis.call('ZREM', KEYS[2], ARGV[1])
end
return 'ok'
""")

LAPSED = Script("""
local prefix, limit, found, past = ARGV[1], tonumber(ARGV[2]), {}, 0
local now, page = whole(now()), 1000
while #found < limit do
  local names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', past, page)
  for _, name in ipairs(names) do
    if #found < limit and string.sub(name, 1, #prefix) == prefix then table.insert(found, name) end
  end
  if #names < page then break end
  past = past + page
end
return found
""")

PUBLISH = Script("""
local box = KEYS[1]
local number, born = 0, nil
local newest = redis.call('XREVRANGE', box, '+', '-', 'COUNT', 1)[1]
if newest then number, born = string.match(newest[1], '(%d+)-(%d+)') end
local id = whole(number + 1) .. '-' .. (born or whole(now()))
redis.call('XADD', box, 'MAXLEN', ARGV[1], id, 'd', ARGV[3])
redis.call('EXPIRE', box, ARGV[2])
redis.call('PUBLISH', box, id)
return 'ok'
""")

TAKE = Script("""
local bucket, always, window, dust = KEYS[1], ARGV[1] == '1', ARGV[2] * 1000000, tonumber(ARGV[3])
local now = now()
local counters, longest, which = {}, 0, ''
for i = 4, #ARGV, 3 do
  local one = {name = ARGV[i], amount = tonumber(ARGV[i + 1]), limit = tonumber(ARGV[i + 2])}
  one.level = one.limit
  local kept = redis.call('HGET', bucket, one.name)
  if kept then
    local level, at = string.match(kept, '(%S+) (%S+)')
    one.level = math.min(one.limit, level + math.max(0, now - at) * one.limit / window)
  end
  if one.level + one.limit * dust < one.amount then
    local wait = math.huge
    if one.amount <= one.limit and one.limit > 0 then wait = (one.amount - one.level) * window / one.limit end
    if wait > longest then longest, which = wait, one.name end
  end
  counters[#counters + 1] = one
end
local allowed = always or which == ''
local full, out = 0, {}
for _, one in ipairs(counters) do
  if allowed then one.level = one.level - one.amount end
  out[#out + 1] = string.format('%.17g', one.level)
  redis.call('HSET', bucket, one.name, out[#out] .. ' ' .. whole(now))
  if one.limit > 0 then full = math.max(full, (one.limit - one.level) * window / one.limit) end
end
if #counters > 0 then
  local keep = math.min(full / 1000 + 1000, 1e13)
  if redis.call('PTTL', bucket) < keep then redis.call('PEXPIRE', bucket, whole(keep)) end
end
return {allowed and 1 or 0, string.format('%.17g', allowed and 0 or longest / 1000000), allowed and '' or which, out}
""")

ACQUIRE_SLOT = Script("""
local places, limit, holder, time = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local now = now()
redis.call('ZREMRANGEBYSCORE', places, '-inf', whole(now))
if not redis.call('ZSCORE', places, holder) and redis.call('ZCARD', places) >= limit then return 0 end
redis.call('ZADD', places, whole(now + time), holder)
local latest = redis.call('ZRANGE', places, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIRE', places, whole((latest - now) / 1000 + 1000))
return 1
""")

SET_PRESENCE = Script("""
local roll, who, time = KEYS[1], ARGV[1], ARGV[2]
local now = now()
redis.call('ZADD', roll, whole(now + time), who)
redis.call('ZREMRANGEBYSCORE', roll, '-inf', whole(now))
local latest = redis.call('ZRANGE', roll, -1, -1, 'WITHSCORES')[2]
if latest then redis.call('PEXPIRE', roll, whole((latest - now) / 1000 + 1000)) end
return 'ok'
""")

LIST_PRESENT = Script("""
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. whole(now()), '+inf')
""")

ALL = (APPEND, DROP, CLAIM, RENEW, RELEASE, LAPSED, PUBLISH, TAKE, ACQUIRE_SLOT, SET_PRESENCE, LIST_PRESENT)
