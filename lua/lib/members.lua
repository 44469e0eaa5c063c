-- Changes of membership. Needs standing.lua and locals CLOCKS, IDS, LEASES, GRACED.
local function change_membership()
  membership = string.format('%.0f', tonumber(membership) + 1)
  redis.call('HSET', CONFIG, 'membership', membership)
end

-- Takes a member out: its clock and its committed deltas stay.
local function depart(worker, why)
  local incarnation, rest = string.match(redis.call('HGET', IDS, worker) or '0 - - ? 0 -', '^(%d+) %S+ (.+)$')
  if why ~= 'done' and started == '1' and redis.call('HGET', CONFIG, 'reproducible') == '1' then
    -- the promise ends: its deltas will be missing; before the start nobody has any
    redis.call('HSET', CONFIG, 'reproducible', '2')
  end
  raise_floor()
  redis.call('ZREM', ORDER, worker)
  redis.call('ZREM', LEASES, worker)
  redis.call('ZREM', GRACED, worker)
  redis.call('HSET', IDS, worker, incarnation .. ' ' .. why .. ' ' .. rest)
  append(table.concat({'l', worker, incarnation, redis.call('HGET', CLOCKS, worker) or '0', '-', why}, ':'))
  raise_floor()
  change_membership()
  if redis.call('ZCARD', ORDER) == 0 then
    -- nobody is left: the job stays readable for `retain`, then goes; a join takes the expiry off again
    local retain = redis.call('HGET', CONFIG, 'retain')
    for i = 1, #KEYS - 1 do
      redis.call('PEXPIRE', KEYS[i], retain)
    end
  end
end

-- The quorum counts members that have spoken within their lease: who died while it waited for the others is none of it.
local function quorum(now, workers)
  local count = redis.call('ZCOUNT', LEASES, '(' .. string.format('%.0f', now), '+inf')
  for _, silent in ipairs(redis.call('ZRANGE', GRACED, 0, -1)) do
    if tonumber(redis.call('ZSCORE', LEASES, silent) or 0) > now then
      count = count - 1
    end
  end
  return count >= workers
end

local function start()
  started = '1'
  redis.call('HSET', CONFIG, 'started', '1')
  raise_floor()
end

-- What whoever asks has seen of the log from now on: its evidence, should the store ever be older than that.
local function last_entry()
  length = length or redis.call('LLEN', LOG)
  return length == 0 and '-1 -' or string.format('%.0f %s', off + length - 1, redis.call('LINDEX', LOG, -1))
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(time[1]) * 1000000 + tonumber(time[2])
end
