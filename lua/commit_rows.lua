-- commit_rows: as commit, for a share of a sparse table: puts the changed rows into its hash, which then holds exactly
-- the rows that a longer log prefix has touched.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] ids  KEYS[4] log  KEYS[5] bases  KEYS[6] rows of the share
--   KEYS[7] undo hash of the share: if it is there (see mark), it gets what is overwritten, "" for what was not there
--   ARGV[1…10] as for commit: run, epoch, worker, incarnation, clock, number.share, "version:generation" it replaces,
--     new version, tag at the new version − 1, channel of commits
--   ARGV[11] the header that goes with the new rows  ARGV[12] bytes of a row's number  ARGV[13] bytes of a record
--   ARGV[14…] the changed rows, some hundred in each: records of a number and the row's elements; none when no tag
--            between the versions touched the share: then only the version moves
-- Output: one line
--   0 version generation    committed
--   -1 | -2 host pid | -3 why | -4 | -8 version generation   as for commit; -1 also when the share's hash is gone
-- Event: commits, "base number.share version generation".

--@include job
local CLOCKS, IDS, LOG, BASES, ROWS, UNDO = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
--@include fence
--@include swap
if redis.call('HEXISTS', ROWS, 'h') == 0 then
  return '-1'
end
if #ARGV > 13 then
  generation = string.format('%.0f', tonumber(generation) + 1)
  redis.call('HSET', ROWS, 'h', ARGV[11])
end
local number, record = tonumber(ARGV[12]), tonumber(ARGV[13])
local words, marked = {}, redis.call('EXISTS', UNDO) == 1
-- Put some rows in; of those that somebody is reading, what was there first is kept.
local function put(count)
  if marked then
    for i = 1, count, 2 do
      redis.call('HSETNX', UNDO, words[i], redis.call('HGET', ROWS, words[i]) or '')
    end
  end
  redis.call('HSET', ROWS, unpack(words, 1, count))
end
for i = 14, #ARGV do
  local records, count = ARGV[i], 0
  for first = 1, #records, record do
    words[count + 1] = string.sub(records, first, first + number - 1)
    words[count + 2] = string.sub(records, first + number, first + record - 1)
    count = count + 2
    if count == 128 then
      put(count)
      count = 0
    end
  end
  if count > 0 then
    put(count)
  end
end
--@include advance
