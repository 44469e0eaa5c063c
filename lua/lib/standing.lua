-- What every control script answers and what is announced. Needs locals ORDER, LOG, MIN and job.lua's.
-- `low` (the min) and `length` (of the log) are read once and forgotten by whoever changes them.
-- All that is put together here are words: formatting numbers would be a tenth of a tick.
-- Until the run has started nobody was admitted, and the min is the floor: where workers come back to clocks that were
-- restored, the first to join may be ahead of the others, who shall resume at theirs.
local low, length
local function lowest()
  low = low or started == '1' and redis.call('ZRANGE', ORDER, 0, 0, 'WITHSCORES')[2] or redis.call('HGET', CONFIG, 'floor')
  return tonumber(low)
end

local function where()
  lowest()
  return epoch .. ' ' .. low .. ' ' .. staleness .. ' ' .. membership .. ' ' .. stop .. ' ' .. started
end

local function standing(at)
  length = length or redis.call('LLEN', LOG)
  return '0 ' .. where() .. ' ' .. at .. ' ' .. off + length
end

-- Begins with the run: channels are the same in all databases of a server, and a job may be deleted and made anew.
-- `more`: the end of the log and its last tags, from a tick that pushed something: who waits for it reads next.
local function announce(more)
  redis.call('PUBLISH', MIN, run .. ' ' .. where() .. (more or ''))
end

-- Without tables nobody needs old tags. Every length is reached by one call of this, whoever calls: no multiple is missed.
-- `there`: the log must be; the answer is 0, and nothing was written, when it is not.
local function append(text, there)
  if there then
    length = redis.call('RPUSHX', LOG, text)
  else
    length = redis.call('RPUSH', LOG, text)
  end
  if length % 1024 == 0 and length >= 2048 and redis.call('HGET', CONFIG, 'tables') == '0' then
    redis.call('LTRIM', LOG, -1024, -1)
    off, length = off + length - 1024, 1024
    redis.call('HSET', CONFIG, 'off', string.format('%.0f', off))
  end
  return length
end

-- The floor is the highest min seen. It is brought up to the min before and after every change of membership, and
-- nowhere else: between two changes the min itself tells.
local function raise_floor()
  low = nil
  local floor = tonumber(redis.call('HGET', CONFIG, 'floor'))
  if lowest() > floor then
    redis.call('HSET', CONFIG, 'floor', low)
    return tonumber(low)
  end
  return floor
end
