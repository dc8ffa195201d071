"""The scripts of the scrub: three scripts compare inside Redis, and one repairs.

A damaged key can hold any names and values. They stay in Redis, or are transferred as octets,
because they may not be valid text.
"""

from sinks.redis.script import CHECK_VIEW, FOLLOW

# ARGV: pairs of a window's key and a start. Returns JSON with, for each pair: fields, expiry,
# members of the ranking, its expiry, and 1 if `@start` is the given one. Fields and members are -1
# if the key has another type.
LOOK = """
local function size(key, kind, count)
  local found = redis.call('TYPE', key).ok
  if found == 'none' then return 0 end
  if found ~= kind then return -1 end
  return redis.call(count, key)
end
local told = {}
for i = 1, #ARGV, 2 do
  local key, top = ARGV[i], ARGV[i] .. ':top'
  local fields = size(key, 'hash', 'HLEN')
  local starts = fields > 0 and redis.call('HGET', key, '@start') == ARGV[i + 1]
  told[#told + 1] = {fields, redis.call('EXPIRETIME', key), size(top, 'zset', 'ZCARD'),
                     redis.call('EXPIRETIME', top), starts and 1 or 0}
end
return cjson.encode(told)
"""

# ARGV: a window's key, the latest key that shows it (or ''), JSON of names, JSON of values. Returns
# the indices (from 1) of values that differ in the window's key, followed by 0 if any value differs
# in the latest key.
COMPARE = """
local names, values = cjson.decode(ARGV[3]), cjson.decode(ARGV[4])
local function differing(key)
  local found = {}
  if redis.call('TYPE', key).ok == 'hash' then found = redis.call('HMGET', key, unpack(names)) end
  local places = {}
  for i = 1, #names do
    if found[i] ~= values[i] then places[#places + 1] = i end
  end
  return places
end
local places = differing(ARGV[1])
if ARGV[2] ~= '' and #differing(ARGV[2]) > 0 then places[#places + 1] = 0 end
return places
"""

# ARGV: the key of a hash with a ranking, the suffix of a member's field, JSON of the scores,
# highest first. Returns 1 if the ranking has exactly these scores, and each score is also the value
# of the member's field in the hash. Without scores, returns 1 if there is no ranking. The order of
# members with equal scores is not compared, because Redis and the truth sort names of several parts
# differently.
RANKED = """
local scores, top = cjson.decode(ARGV[3]), ARGV[1] .. ':top'
if #scores == 0 then return redis.call('EXISTS', top) == 0 and 1 or 0 end
if redis.call('TYPE', top).ok ~= 'zset' or redis.call('ZCARD', top) ~= #scores then return 0 end
local found = redis.call('ZREVRANGE', top, 0, -1, 'WITHSCORES')
for i, score in ipairs(scores) do
  local own = redis.call('HGET', ARGV[1], found[2 * i - 1] .. ARGV[2])
  local shown = tonumber(found[2 * i])
  if shown ~= tonumber(score) or not own or shown ~= tonumber(own) then return 0 end
end
return 1
"""

# ARGV[1] is JSON: {epoch, expect, key, expire, fields, replace, ranking, latest, start}; the fields
# to delete follow. Returns the same words as the script of a merge. A key of another type under the
# window's name is deleted, as a refill would do.
MEND = (
    CHECK_VIEW
    + FOLLOW
    + """
local function keep(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then redis.call('DEL', key) end
end
local top = call.key .. ':top'
keep(call.key, 'hash')
keep(top, 'zset')
if #ARGV > 1 then redis.call('HDEL', call.key, unpack(ARGV, 2)) end
if #call.fields > 0 then redis.call('HSET', call.key, unpack(call.fields)) end
if call.replace then redis.call('DEL', top) end
if #call.ranking > 0 then redis.call('ZADD', top, unpack(call.ranking)) end
for _, key in ipairs({call.key, top}) do
  if call.expire > 0 then redis.call('EXPIREAT', key, call.expire)
  else redis.call('PERSIST', key) end
end
if call.latest ~= '' then
  follow(call.key, call.latest)
  if redis.call('EXISTS', call.latest) == 1 then
    redis.call('HSET', call.latest, '@start', call.start)
  end
  follow(top, call.latest .. ':top')
end
return 'ok'
"""
)
