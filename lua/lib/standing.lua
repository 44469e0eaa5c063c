-- What every control script answers and what is announced. Needs locals ORDER, LOG, MIN and job.lua's.
local function lowest()
  local first = redis.call('ZRANGE', ORDER, 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or floor
end

local function standing(at)
  return string.format('0 %s %.0f %s %s %s %s %.0f %.0f', epoch, lowest(), staleness, membership, stop, started, at,
    off + redis.call('LLEN', LOG))
end

local function announce()
  redis.call('PUBLISH', MIN,
    string.format('%s %.0f %s %s %s %s', epoch, lowest(), staleness, membership, stop, started))
end

-- Appends to the log and remembers the tag as the worker's last.
local function append(worker, text)
  local position = off + redis.call('RPUSH', LOG, text) - 1
  redis.call('HSET', TAGS, worker, string.format('%.0f %s', position, text))
end

-- The floor is the highest min seen: it follows the min and never falls.
local function raise_floor()
  local now = lowest()
  if now > floor then
    floor = now
    redis.call('HSET', CONFIG, 'floor', string.format('%.0f', floor))
  end
end
