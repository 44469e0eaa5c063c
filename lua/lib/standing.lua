-- What every control script answers and what is announced. Needs locals ORDER, LOG, MIN and job.lua's.
-- `low` (the min) and `length` (of the log) are read once and forgotten by whoever changes them.
local low, length
local function lowest()
  low = low or tonumber(redis.call('ZRANGE', ORDER, 0, 0, 'WITHSCORES')[2]) or floor
  return low
end

local function standing(at)
  length = length or redis.call('LLEN', LOG)
  return string.format('0 %s %.0f %s %s %s %s %.0f %.0f', epoch, lowest(), staleness, membership, stop, started, at,
    off + length)
end

local function announce()
  redis.call('PUBLISH', MIN,
    string.format('%s %.0f %s %s %s %s', epoch, lowest(), staleness, membership, stop, started))
end

local function append(text)
  length = redis.call('RPUSH', LOG, text)
end

-- The floor is the highest min seen. It is brought up to the min before and after every change of membership, and
-- nowhere else: between two changes the min itself tells.
local function raise_floor()
  low = nil
  if lowest() > floor then
    floor = low
    redis.call('HSET', CONFIG, 'floor', string.format('%.0f', floor))
  end
end
