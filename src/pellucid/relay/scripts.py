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
local function as_text(number) return string.format('%.0f', number) end
"""

APPEND = Script("""
local life, tombstone = ARGV[1], ARGV[2]
local function append(log, mark, fence, after, last, first, entry_count)
  local mark_fields = redis.call('HMGET', mark, 'fence', 'count', 'born', 'ended')
  if fence > 0 and not mark_fields[1] then return 'lost' end
  if fence < tonumber(mark_fields[1] or '0') then return 'fenced' end
  local count, born, ended = tonumber(mark_fields[2] or '0'), mark_fields[3], mark_fields[4] or '0'
  if born and redis.call('EXISTS', log) == 0 then return 'lost' end
  if after >= 0 and after ~= count then
    if after + entry_count == count and ended == last then return count end
    return 'other'
  end
  if ended == '1' then return 'fenced' end
  if entry_count == 0 and last == '0' then return count end
  born = born or as_text(now())
  for i = first, first + entry_count - 1 do
    count = count + 1
    redis.call('XADD', log, count .. '-' .. born, 'd', ARGV[i])
  end
  local newest = count
  if last == '1' then
    newest = count + 1
    redis.call('XADD', log, newest .. '-' .. born, 'z', '')
  end
  redis.call('HSET', mark, 'fence', as_text(fence), 'count', count, 'born', born, 'ended', last)
  redis.call('EXPIRE', log, life)
  redis.call('EXPIRE', mark, life + tombstone)
  redis.call('PUBLISH', log, newest .. '-' .. born)
  return count
end
local results, position = {}, 3
for i = 1, #KEYS, 2 do
  local fence, after, last = tonumber(ARGV[position]), tonumber(ARGV[position + 1]), ARGV[position + 2]
  local entry_count = tonumber(ARGV[position + 3])
  local succeeded, result = pcall(append, KEYS[i], KEYS[i + 1], fence, after, last, position + 4, entry_count)
  if not succeeded and type(result) ~= 'table' then result = {err = result} end
  table.insert(results, result)
  position = position + 4 + entry_count
end
return results
""")

DROP = Script("""
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 1 then redis.call('PEXPIRE', KEYS[2], ARGV[1] + ARGV[2]) end
return 'ok'
""")

CLAIM = Script("""
local mark, leases = KEYS[1], KEYS[2]
local name, holder, duration, lapsed, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now = now()
local expires_at = redis.call('ZSCORE', leases, name)
local is_free = not expires_at or tonumber(expires_at) <= now
if lapsed == '1' and (not expires_at or not is_free) then return false end
if not is_free and redis.call('HGET', mark, 'holder') ~= holder then return false end
local fence = math.max(now, tonumber(redis.call('HGET', mark, 'fence') or '0') + 1)
redis.call('HSET', mark, 'fence', as_text(fence), 'holder', holder)
redis.call('PEXPIRE', mark, as_text(math.max(tonumber(life), duration / 1000) + duration / 1000))
redis.call('ZADD', leases, as_text(now + duration), name)
return fence
""")

RENEW = Script("""
local mark, leases = KEYS[1], KEYS[2]
local name, token, duration, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', mark, 'fence') ~= token or not redis.call('ZSCORE', leases, name) then return 0 end
redis.call('PEXPIRE', mark, as_text(tonumber(life) + duration / 1000))
redis.call('ZADD', leases, as_text(now() + duration), name)
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
local prefix, limit, lapsed, offset = ARGV[1], tonumber(ARGV[2]), {}, 0
local now, page = as_text(now()), 1000
while #lapsed < limit do
  local names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', offset, page)
  for _, name in ipairs(names) do
    if #lapsed < limit and string.sub(name, 1, #prefix) == prefix then table.insert(lapsed, name) end
  end
  if #names < page then break end
  offset = offset + page
end
return lapsed
""")

PUBLISH = Script("""
local box = KEYS[1]
local number, born = 0, nil
local newest = redis.call('XREVRANGE', box, '+', '-', 'COUNT', 1)[1]
if newest then number, born = string.match(newest[1], '(%d+)-(%d+)') end
local id = as_text(number + 1) .. '-' .. (born or as_text(now()))
redis.call('XADD', box, 'MAXLEN', ARGV[1], id, 'd', ARGV[3])
redis.call('EXPIRE', box, ARGV[2])
redis.call('PUBLISH', box, id)
return 'ok'
""")

TAKE = Script("""
local bucket, is_forced, window, tolerance = KEYS[1], ARGV[1] == '1', ARGV[2] * 1000000, tonumber(ARGV[3])
local now = now()
local counters, longest, limiting_counter = {}, 0, ''
for i = 4, #ARGV, 3 do
  local counter = {name = ARGV[i], amount = tonumber(ARGV[i + 1]), limit = tonumber(ARGV[i + 2])}
  counter.level = counter.limit
  local stored = redis.call('HGET', bucket, counter.name)
  if stored then
    local level, updated_at = string.match(stored, '(%S+) (%S+)')
    counter.level = math.min(counter.limit, level + math.max(0, now - updated_at) * counter.limit / window)
  end
  if counter.level + counter.limit * tolerance < counter.amount then
    local wait = math.huge
    if counter.amount <= counter.limit and counter.limit > 0 then
      wait = (counter.amount - counter.level) * window / counter.limit
    end
    if wait > longest then longest, limiting_counter = wait, counter.name end
  end
  counters[#counters + 1] = counter
end
local allowed = is_forced or limiting_counter == ''
local refill_time, levels = 0, {}
for _, counter in ipairs(counters) do
  if allowed then counter.level = counter.level - counter.amount end
  levels[#levels + 1] = string.format('%.17g', counter.level)
  redis.call('HSET', bucket, counter.name, levels[#levels] .. ' ' .. as_text(now))
  if counter.limit > 0 then
    refill_time = math.max(refill_time, (counter.limit - counter.level) * window / counter.limit)
  end
end
if #counters > 0 then
  local life_ms = math.min(refill_time / 1000 + 1000, 1e13)
  if redis.call('PTTL', bucket) < life_ms then redis.call('PEXPIRE', bucket, as_text(life_ms)) end
end
local retry_after = string.format('%.17g', allowed and 0 or longest / 1000000)
return {allowed and 1 or 0, retry_after, allowed and '' or limiting_counter, levels}
""")

ACQUIRE_SLOT = Script("""
local slots, limit, holder, time = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local now = now()
redis.call('ZREMRANGEBYSCORE', slots, '-inf', as_text(now))
if not redis.call('ZSCORE', slots, holder) and redis.call('ZCARD', slots) >= limit then return 0 end
redis.call('ZADD', slots, as_text(now + time), holder)
local last_expiry = redis.call('ZRANGE', slots, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIRE', slots, as_text((last_expiry - now) / 1000 + 1000))
return 1
""")

SET_PRESENCE = Script("""
local group, member, time = KEYS[1], ARGV[1], ARGV[2]
local now = now()
redis.call('ZADD', group, as_text(now + time), member)
redis.call('ZREMRANGEBYSCORE', group, '-inf', as_text(now))
local last_expiry = redis.call('ZRANGE', group, -1, -1, 'WITHSCORES')[2]
if last_expiry then redis.call('PEXPIRE', group, as_text((last_expiry - now) / 1000 + 1000)) end
return 'ok'
""")

LIST_PRESENT = Script("""
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. as_text(now()), '+inf')
""")

ALL = (APPEND, DROP, CLAIM, RENEW, RELEASE, LAPSED, PUBLISH, TAKE, ACQUIRE_SLOT, SET_PRESENCE, LIST_PRESENT)
