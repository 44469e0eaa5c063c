-- publish: makes a claimed table visible, whole: the scratch blocks become its first base.
--
-- Input
--   KEYS[1] config  KEYS[2] tables  KEYS[3] bases  KEYS[4] log
--   KEYS[5…] n scratch blocks, then n base blocks (generation 0), in the same order
--   ARGV[1] run  ARGV[2] table name  ARGV[3] claimer  ARGV[4] number of shares  ARGV[5] channel of commits
-- Output: one line
--   0 version     published: the log length at which its first base stands (a replay: the length now)
--   -1            job gone or another run
--   -8            the claim is another's by now, or a scratch block is missing: claim again
-- Event: commits, "table NAME".

--@include job
local TABLES, BASES, LOG = KEYS[2], KEYS[3], KEYS[4]
local number, state, holder, description =
  string.match(redis.call('HGET', TABLES, ARGV[2]) or '', '^(%d+) (%a+) (%d+) %d+ (%S+)$')
if holder ~= ARGV[3] then
  return '-8'
end
local version = string.format('%.0f', off + redis.call('LLEN', LOG))
if state == 'ready' then
  return '0 ' .. version
end
local blocks = (#KEYS - 4) / 2
for i = 1, blocks do
  if redis.call('EXISTS', KEYS[4 + i]) == 0 then
    return '-8'
  end
end
for i = 1, blocks do
  redis.call('RENAME', KEYS[4 + i], KEYS[4 + blocks + i])
end
for share = 0, tonumber(ARGV[4]) - 1 do
  redis.call('HSET', BASES, number .. '.' .. share, version .. ':0')
end
redis.call('HSET', TABLES, ARGV[2], table.concat({number, 'ready', holder, '0', description}, ' '))
redis.call('HINCRBY', CONFIG, 'tables', 1)
redis.call('PUBLISH', ARGV[5], 'table ' .. ARGV[2])
return '0 ' .. version
