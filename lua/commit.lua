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
--@include swap
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
--@include advance
