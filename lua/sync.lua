-- sync: heartbeat, re-check, reaper and reconnection in one. First on every new connection, before any write.
-- Renews the caller's lease, then removes members whose lease ran out, and tells the caller where it stands. Where the
-- store turns out to be behind the caller (failover, lost tail of the AOF) it begins a new epoch and restores the
-- caller's clock, logging what was lost. Others that find the same loss reconcile with that epoch, unless the min would
-- fall in it. Whoever is restored is a member again in full: the quorum counts it, and the job no longer expires.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] ids  KEYS[5] leases  KEYS[6] log  KEYS[7] graced
--   KEYS[8] runs  KEYS[9] min (channel)
--   ARGV[1] run  ARGV[2] epoch  ARGV[3] worker ("" for an observer, who only reaps)  ARGV[4] incarnation
--   ARGV[5] clock the caller knows  ARGV[6] log position it knows (-1: none)  ARGV[7] the tag at that position
--   ARGV[8] nonce  ARGV[9] host  ARGV[10] pid   (as joined, to restore a record that was rolled back)
--   ARGV[11] ms (empty or left out: never): the caller is blocked, and if the min does not move for so long from the
--     first such call on, whoever has held it since then is evicted
--   ARGV[12] clocks that the caller may lead by until it is blocked (empty or left out: the staleness; 0 in a barrier)
-- Output: one line
--   0 epoch min staleness membership stop started clock end members next restored position tag
--     `next`: ms until the earliest lease of another member runs out, or the time that ARGV[11] gives who holds the min
--     (-1: neither); `restored`: "-", or "epoch:clock" when this incarnation was last restored after a rollback: its
--     deltas from that clock on were not in the store when that epoch began; `position tag`: the last entry of the log
--     ("-1 -" when it is empty).
--   -1 | -2 host pid | -3 why   refused (lua/README.md, codes)
-- Event: min, when a member was removed or an epoch began.

--@include job
local CLOCKS, ORDER, IDS, LEASES, LOG, GRACED, MIN = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[9]
--@include fence
--@include standing
--@include members
local now, us = now_ms()
local extra = redis.call('HMGET', CONFIG, 'lease', 'time', 'last', 'workers')
local lease, before, last = tonumber(extra[1]), tonumber(extra[2]), tonumber(extra[3] or 0)
local caller = worker ~= ''
local changed, restored = false, '-'

if redis.call('EXISTS', CLOCKS, IDS, LOG) < 3 then
  return '-1'  -- evicted or deleted: without the log, a tag would stand where others have stood
end
if caller then
  local refused = refusal()
  if refused and refused ~= '-4' then
    return refused
  end
  -- keys that were evicted or deleted, one by one: whoever is a member stands in each of them
  if redis.call('ZCARD', ORDER) ~= redis.call('ZCARD', LEASES)
    or not refused and not redis.call('ZSCORE', ORDER, worker) then
    return '-1'
  end
  local ahead = tonumber(ARGV[2]) > tonumber(epoch)
  local behind = tonumber(ARGV[2]) < tonumber(epoch)
  -- Is the store older than the caller? Its clock, its incarnation, or a tag it has seen tells.
  local holder = 0
  if record then
    holder, restored = string.match(record, '^(%d+) %S+ %S+ %S+ %S+ (%S+)')
    holder = tonumber(holder)
  end
  local rolled = stored < clock or holder < incarnation
  local position = tonumber(ARGV[6])
  if not rolled and not behind and position >= off then
    local length = off + redis.call('LLEN', LOG)
    rolled = position >= length or redis.call('LINDEX', LOG, position - length) ~= ARGV[7]
  end
  -- where nothing else is older, a member without a place or a lease tells that a memory policy took those keys
  if not (rolled or ahead) and not (redis.call('ZSCORE', ORDER, worker) and redis.call('ZSCORE', LEASES, worker)) then
    return '-1'
  end
  if rolled or ahead then
    if not behind or math.max(stored, clock) < lowest() then
      -- another caller that was behind too reconciles with this epoch and begins no other, unless the min would fall
      epoch = string.format('%.0f', math.max(tonumber(epoch), tonumber(ARGV[2])) + 1)
      redis.call('HSET', CONFIG, 'epoch', epoch)
    end
    local lost = math.max(stored, 0)
    local at, from = string.match(restored, '^(%d+):(%d+)$')
    if holder == incarnation and at and tonumber(at) > tonumber(ARGV[2]) then
      -- rolled back twice before the caller looked: the loss begins where the first one did
      lost = math.min(lost, tonumber(from))
    end
    restored = string.format('%s:%.0f', epoch, lost)
    stored = math.max(stored, clock)
    local text = string.format('%.0f', stored)
    redis.call('HSET', CLOCKS, worker, text)
    redis.call('ZADD', ORDER, text, worker)
    low = nil
    if stored < tonumber(redis.call('HGET', CONFIG, 'floor')) then
      redis.call('HSET', CONFIG, 'floor', text)
    end
    redis.call('HSET', IDS, worker, table.concat({ARGV[4], '-', ARGV[8], ARGV[9], ARGV[10], restored}, ' '))
    if last < incarnation then
      redis.call('HSET', CONFIG, 'last', ARGV[4])
    end
    append(table.concat({'r', worker, ARGV[4], text, '-', string.format('%.0f', lost)}, ':'))
    raise_floor()
    change_membership()
    -- The store may be from before the quorum was there. A clock above 0 tells that the job had started.
    if started == '0' and stored > 0 then
      start()
    end
    for i = 1, #KEYS - 1 do
      redis.call('PERSIST', KEYS[i])
    end
    redis.call('HDEL', CONFIG, 'still')  -- members may have fallen back to the min
    changed = true
  end
end

-- A long silence of everybody, or a clock that ran backwards, is the server's fault (frozen, failed over) and not the
-- members': they get a new lease, each once until it speaks again, else a slow caller would keep the dead alive. The
-- lease before tells when they were heard of.
local gap = now - before
if gap > lease / 2 or gap < 0 then
  redis.call('HDEL', CONFIG, 'still')
  local leases = redis.call('ZRANGE', LEASES, 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    if redis.call('ZADD', GRACED, 'NX', leases[i + 1], leases[i]) == 1 or tonumber(leases[i + 1]) > now + lease then
      redis.call('ZADD', LEASES, string.format('%.0f', now + lease), leases[i])
    end
  end
end
redis.call('HSET', CONFIG, 'time', string.format('%.0f', now))
-- the caller's lease before anybody's is judged: it speaks, so it lives
if caller then
  redis.call('ZADD', LEASES, string.format('%.0f', now + lease), worker)
  redis.call('ZREM', GRACED, worker)
end
-- in a reproducible run the others wait for the return of whoever is missing
for _, dead in ipairs(redis.call('HGET', CONFIG, 'reproducible') == '1' and {} or redis.call('ZRANGEBYSCORE', LEASES, '-inf', string.format('%.0f', now))) do
  depart(dead, 'lost')
  changed = true
end
-- who was not counted when others joined has spoken now
if started == '0' and quorum(now, tonumber(extra[4])) then
  start()
  changed = true
end
-- Who beats but no longer ticks holds up whoever has run ahead as far as it may; others are not hurt by a long step.
-- Who has come to the min since its time began, a newcomer or a successor, has a higher incarnation than `newest`.
local patience, bound = tonumber(ARGV[11] or '') or 0, tonumber(ARGV[12] or '') or tonumber(staleness)
local due
if caller and patience > 0 and started == '1' and bound >= 0 and stored - lowest() > bound
  and redis.call('HGET', CONFIG, 'reproducible') ~= '1' then
  local at, since, newest = string.match(redis.call('HGET', CONFIG, 'still') or '', '^(%d+) (%d+) (%d+)$')
  local known = at == low
  due = known and tonumber(since) + patience - now or 0
  if due <= 0 then
    for _, holder in ipairs(known and redis.call('ZRANGEBYSCORE', ORDER, low, low) or {}) do
      if tonumber(string.match(redis.call('HGET', IDS, holder) or '0', '^%d+')) <= tonumber(newest) then
        depart(holder, 'evicted')
        changed = true
      end
    end
    due = stored - lowest() > bound and patience or nil
    redis.call('HSET', CONFIG, 'still', string.format('%s %.0f %.0f', low, now, last))
  end
end
if changed then
  announce()
end

local first = redis.call('ZRANGE', LEASES, 0, 1, 'WITHSCORES')
local score = first[1] ~= worker and first[2] or first[4]
local following = score and tonumber(score) - now or -1
if due and (not score or due < following) then
  following = due
end
return string.format('%s %.0f %.0f %s %s', standing(math.max(stored, 0)), redis.call('ZCARD', ORDER), following,
  restored, last_entry())
