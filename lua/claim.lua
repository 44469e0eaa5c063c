-- claim: the right to make a table, under a lease. Whoever gets it writes the blocks as scratch, then publishes.
--
-- Input
--   KEYS[1] config  KEYS[2] tables
--   ARGV[1] run  ARGV[2] table name  ARGV[3] description: dtype:shape:shares:blocks:rows:slots (lua/README.md)
--   ARGV[4] claimer (an incarnation, or a random number for a writer from outside; 0 only asks)  ARGV[5] lease ms
-- Output: one line
--   0 ready number description      the table is there, as described by who made it
--   0 yours number description      make it, then publish
--   0 none                          ARGV[4] was 0 and nobody has made it
--   -1                              job, or the list of its tables, gone, or another run
--   -9 ms                           somebody else is making it; his claim runs out in so many ms
-- Event: none.

--@include job
local TABLES = KEYS[2]
local claimer = ARGV[4]
-- a hash that was evicted or deleted: a table that is there must not be made once more
if redis.call('HLEN', TABLES) < tonumber(redis.call('HGET', CONFIG, 'tables')) then
  return '-1'
end
local record = redis.call('HGET', TABLES, ARGV[2])
local number, state, holder, expiry, description
if record then
  number, state, holder, expiry, description = string.match(record, '^(%d+) (%a+) (%d+) (%d+) (%S+)$')
  if state == 'ready' then
    return '0 ready ' .. number .. ' ' .. description
  end
end
if claimer == '0' then
  return '0 none'
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if record and holder ~= claimer and tonumber(expiry) > now then
  return '-9 ' .. string.format('%.0f', tonumber(expiry) - now)
end
number = number or redis.call('HLEN', TABLES)
redis.call('HSET', TABLES, ARGV[2],
  string.format('%s claimed %s %.0f %s', number, claimer, now + tonumber(ARGV[5]), ARGV[3]))
return '0 yours ' .. number .. ' ' .. ARGV[3]
