"""The scripts that do all writes to Redis after checking the guard.

A script first checks the guard, then the types of all keys, and then writes. Redis has no rollback,
so every check must come before the first write. A retry or a replay runs the script again and
changes nothing.
"""

# ARGV[1] is JSON: {epoch, query, batch, seq, expect, last, writes, meta, published}.
# Returns "ok", "fenced" (a newer epoch wrote) or "behind" (the guard's seq is not `expect`).
CHECK_VIEW = """
local call = cjson.decode(ARGV[1])
local guard = redis.call('HMGET', 'mill:guard', 'epoch', 'seq')
if guard[1] and tonumber(guard[1]) > tonumber(call.epoch) then return 'fenced' end
if tonumber(guard[2] or -1) ~= call.expect then return 'behind' end
"""

# The key of the latest window is a copy of the window's own key, and never expires.
FOLLOW = """
local function follow(from, to)
  if redis.call('EXISTS', from) == 1 then
    redis.call('COPY', from, to, 'REPLACE')
    redis.call('PERSIST', to)
  else
    redis.call('DEL', to)
  end
end
"""

_APPLY = """
local function is(key, kind)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == kind
end
for _, w in ipairs(call.writes) do
  if not is(w.key, 'hash') or not is(w.key .. ':top', 'zset')
     or (w.latest ~= '' and (not is(w.latest, 'hash') or not is(w.latest .. ':top', 'zset'))) then
    return redis.error_reply('WRONGTYPE a key of the mill holds something else: ' .. w.key)
  end
end

-- The highest `top` members stay; of those that equal the last of them, the first by name.
local function trim(key, top)
  local surplus = redis.call('ZCARD', key) - top
  if surplus <= 0 then return end
  local last = redis.call('ZREVRANGE', key, top - 1, top - 1, 'WITHSCORES')[2]
  local below = redis.call('ZCOUNT', key, '-inf', '(' .. last)
  local equal = redis.call('ZCOUNT', key, last, last)
  local equal_out = surplus - below
  if equal_out > 0 then
    redis.call('ZREMRANGEBYRANK', key, below + equal - equal_out, below + equal - 1)
  end
  if below > 0 then redis.call('ZREMRANGEBYRANK', key, 0, below - 1) end
end

for _, w in ipairs(call.writes) do
  if #w.fields > 0 then redis.call('HSET', w.key, unpack(w.fields)) end
  local top = w.key .. ':top'
  if w.replace then redis.call('DEL', top) end
  if #w.ranking > 0 then
    redis.call('ZADD', top, unpack(w.ranking))
    trim(top, w.top)
  end
  if w.expire > 0 then
    redis.call('EXPIREAT', w.key, w.expire)
    redis.call('EXPIREAT', top, w.expire)
  end
  if w.latest ~= '' and redis.call('EXISTS', w.key) == 1 then
    local shown = redis.call('HGET', w.latest, '@start')
    if shown == w.start and #w.fields > 0 then
      redis.call('HSET', w.latest, unpack(w.fields))
      follow(top, w.latest .. ':top')
    elseif not shown or shown < w.start then
      follow(w.key, w.latest)
      redis.call('HSET', w.latest, '@start', w.start)
      follow(top, w.latest .. ':top')
    end
  end
end

if call.last then
  redis.call('HSET', 'mill:guard', 'epoch', call.epoch, 'query', call.query,
             'batch', call.batch, 'seq', call.seq)
  if #call.meta > 0 then redis.call('HSET', 'mill:meta', unpack(call.meta)) end
  if call.published ~= '' then redis.call('PUBLISH', 'mill:updates', call.published) end
end
"""

WRITE = CHECK_VIEW + FOLLOW + _APPLY + "return 'ok'"

# If Redis is the truth, the same call also contains the counted data. ARGV[1] then has `states`
# ({key, expire, fields}), `ledger` (field and value in turn), `unparsed` (field and increment) and
# `samples` (field and line).
# The key `mill:guard` names the driver that may write, and its last batch. The call changes nothing
# unless that is this driver with an earlier batch.
MERGE = (
    """
local call = cjson.decode(ARGV[1])
local guard = redis.call('HMGET', 'mill:guard', 'epoch', 'query', 'batch')
if guard[1] ~= call.epoch or guard[2] ~= call.query then return 'fenced' end
if tonumber(guard[3]) >= tonumber(call.batch) then return 'replay' end
"""
    + FOLLOW
    + _APPLY
    + """
for _, state in ipairs(call.states) do
  redis.call('HSET', state.key, unpack(state.fields))
  if state.expire > 0 then redis.call('EXPIREAT', state.key, state.expire) end
end
if #call.ledger > 0 then redis.call('HSET', 'mill:ledger', unpack(call.ledger)) end
for i = 1, #call.unparsed, 2 do
  redis.call('HINCRBY', 'mill:unparsed', call.unparsed[i], call.unparsed[i + 1])
end
for i = 1, #call.samples, 2 do
  redis.call('HSET', call.samples_key, call.samples[i], call.samples[i + 1])
end
if #call.samples > 0 then redis.call('EXPIREAT', call.samples_key, call.samples_expire) end
return 'ok'
"""
)

# Called by a new driver: raises the epoch. Under another query, batch ids begin again.
# ARGV: query id. Returns epoch, query, batch, seq.
OPEN = """
local g = redis.call('HMGET', 'mill:guard', 'epoch', 'query', 'batch', 'seq')
local batch = (g[2] == ARGV[1]) and g[3] or '-1'
redis.call('HSET', 'mill:guard', 'epoch', string.format('%d', tonumber(g[1] or 0) + 1),
           'query', ARGV[1], 'batch', batch, 'seq', g[4] or '0')
return redis.call('HMGET', 'mill:guard', 'epoch', 'query', 'batch', 'seq')
"""
