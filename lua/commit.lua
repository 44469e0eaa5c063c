-- commit: replaces one share of a table's base by the exact sum of a longer log prefix. The compare-and-swap on the
-- version is what makes folding safe, whoever does it.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] ids  KEYS[4] log  KEYS[5] bases
--   KEYS[6…] n scratch blocks of the share, then n base blocks of the generation to come, in the same order; none when
--            no tag between the versions touched the table: then only the version moves
--   ARGV[1] run  ARGV[2] epoch  ARGV[3] worker  ARGV[4] incarnation  ARGV[5] clock the caller knows
--   ARGV[6] number.share  ARGV[7] version and generation it replaces, "version:generation"
--   ARGV[8] the new version  ARGV[9] the tag at the new version − 1  ARGV[10] channel of commits
--   ARGV[11…] the header that each scratch block must carry, in the order of KEYS
-- Output: one line
--   0 version generation    committed
--   -1 | -2 host pid | -3 why | -4   refused before any write (lua/README.md, codes); also -4 when the log has another
--                                    tag at that place than the caller summed: the store was rolled back
--   -8 version generation   somebody else committed first (or this is a replay of a commit that won)
--   -11                     a scratch block is missing or is not what was stated: write it again
-- Event: commits, "base number.share version generation".

--@include job
local CLOCKS, IDS, LOG, BASES = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
--@include fence
local refused = refusal()
if refused then
  return refused
end
local current = redis.call('HGET', BASES, ARGV[6])
if not current then
  return '-1'
elseif current ~= ARGV[7] then
  return '-8 ' .. string.gsub(current, ':', ' ')
end
local version, generation = string.match(current, '^(%d+):(%d+)$')
local new, length = tonumber(ARGV[8]), redis.call('LLEN', LOG)
if new <= tonumber(version) then
  return '-8 ' .. string.gsub(current, ':', ' ')
elseif new > off + length or redis.call('LINDEX', LOG, new - 1 - off - length) ~= ARGV[9] then
  return '-4'
end
local blocks = (#KEYS - 5) / 2
for i = 1, blocks do
  local header = ARGV[10 + i]
  if redis.call('GETRANGE', KEYS[5 + i], 0, #header - 1) ~= header then
    return '-11'
  end
end
for i = 1, blocks do
  redis.call('RENAME', KEYS[5 + i], KEYS[5 + blocks + i])
end
if blocks > 0 then
  generation = string.format('%.0f', tonumber(generation) + 1)
end
redis.call('HSET', BASES, ARGV[6], ARGV[8] .. ':' .. generation)
-- Tags that every base holds are no longer needed; some are kept for readers that are only a little behind.
local low = new
for _, value in ipairs(redis.call('HVALS', BASES)) do
  low = math.min(low, tonumber(string.match(value, '^%d+')))
end
local drop = low - 256 - off
if drop > 0 then
  redis.call('LTRIM', LOG, drop, -1)
  redis.call('HSET', CONFIG, 'off', string.format('%.0f', off + drop))
end
redis.call('PUBLISH', ARGV[10], 'base ' .. ARGV[6] .. ' ' .. ARGV[8] .. ' ' .. generation)
return '0 ' .. ARGV[8] .. ' ' .. generation
