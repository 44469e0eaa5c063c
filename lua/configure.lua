-- configure: changes the staleness or the stop flag, stating the value it replaces.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] log  KEYS[5] min (channel)
--   ARGV[1] run  ARGV[2] field: staleness (-1: infinite) or stop (0, 1)  ARGV[3] value it replaces  ARGV[4] new value
-- Output: one line
--   0 epoch min staleness membership stop started 0 end
--   -1           refused: job gone or another run
--   -12 field    no such field, or not a value for it; `reproducible`: such a job has staleness 0, for good
--   -8 stored    the value is neither the old nor the new one stated
-- Event: min, when the value changed: whoever a higher staleness admits, wakes.

--@include job
local ORDER, LOG, MIN = KEYS[3], KEYS[4], KEYS[5]
--@include standing
if not (ARGV[2] == 'staleness' and string.match(ARGV[4], '^-?%d+$') or ARGV[2] == 'stop' and string.match(ARGV[4], '^[01]$')) then
  return '-12 ' .. ARGV[2]
end
local current = redis.call('HGET', CONFIG, ARGV[2])
if current ~= ARGV[4] then
  if current ~= ARGV[3] then
    return '-8 ' .. tostring(current)
  elseif ARGV[2] == 'staleness' and redis.call('HGET', CONFIG, 'reproducible') ~= '0' then
    return '-12 reproducible'
  end
  redis.call('HSET', CONFIG, ARGV[2], ARGV[4])
  if ARGV[2] == 'staleness' then
    staleness = ARGV[4]
  else
    stop = ARGV[4]
  end
  announce()
end
return standing(0)
