-- configure: changes the staleness, the stop flag, or the start quorum of a job that has no members, whose next workers
-- then wait for each other as the first ones did. The caller states how many changes there were before and not the
-- value it replaces: values come back, and a change that is delivered late would be made again.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] log  KEYS[5] min (channel)
--   ARGV[1] run  ARGV[2] field: staleness (-1: infinite), stop (0, 1) or workers  ARGV[3] changes before: what the
--   config says, 0 where it says nothing  ARGV[4] new value
-- Output: one line
--   0 epoch min staleness membership stop started 0 end
--   -1           refused: job gone or another run
--   -12 field    no such field, or not a value for it; `reproducible`: such a job has staleness 0 and its number of
--                workers, for good; `members`: it has some, so the quorum stays
--   -8 changes   the value is not the new one, and there were other changes than stated: so many
-- Event: min, when the value changed: whoever a higher staleness admits, wakes.

--@include job
local ORDER, LOG, MIN = KEYS[3], KEYS[4], KEYS[5]
--@include standing
local form = ({staleness = '^-?%d+$', stop = '^[01]$', workers = '^[1-9]%d*$'})[ARGV[2]]
if not (form and string.match(ARGV[4], form)) then
  return '-12 ' .. ARGV[2]
end
local current = redis.call('HMGET', CONFIG, ARGV[2], 'changes')
local gather = ARGV[2] == 'workers'
if current[1] ~= ARGV[4] or gather and started == '1' then
  if (current[2] or '0') ~= ARGV[3] then
    return '-8 ' .. (current[2] or '0')
  elseif ARGV[2] ~= 'stop' and current[1] ~= ARGV[4] and redis.call('HGET', CONFIG, 'reproducible') ~= '0' then
    return '-12 reproducible'
  elseif gather and redis.call('ZCARD', ORDER) > 0 then
    return '-12 members'
  end
  redis.call('HSET', CONFIG, ARGV[2], ARGV[4])
  redis.call('HINCRBY', CONFIG, 'changes', 1)
  if gather then
    started = '0'
    redis.call('HSET', CONFIG, 'started', started)
  elseif ARGV[2] == 'staleness' then
    staleness = ARGV[4]
  else
    stop = ARGV[4]
  end
  announce()
end
return standing(0)
