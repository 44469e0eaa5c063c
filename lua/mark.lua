-- mark: somebody is about to read whole shares of sparse tables, which takes longer than they stand still. From now on
-- `commit_rows` puts what it overwrites in them into their undo hashes: scanned rows, and these over them, are the bases
-- as they are now. Also takes such marks off.
--
-- Input
--   KEYS[1] config  KEYS[2] bases  KEYS[3…] undo hash of each share
--   ARGV[1] run  ARGV[2] mark: 16 hex digits, random, of who marks, ".", and how often it did  ARGV[3] how long the
--   mark holds, ms (0: take it off)  ARGV[4…] TABLE.SHARE of each share, in the order of KEYS
-- Output: one line
--   0 version…    marked: the versions of the shares' bases at this moment; nothing follows where marks were taken off
--   -1            job gone or another run
--   -9 ms         somebody else has marked a share (or the same one later): for so long, or until it is done
-- Event: none.

--@include job
local BASES, hold = KEYS[2], tonumber(ARGV[3])
local id, count = string.match(ARGV[2], '^(%x+)%.(%d+)$')
local mine = {}
for i = 3, #KEYS do
  local holder, number = string.match(redis.call('HGET', KEYS[i], 'h') or '', '^(%x+)%.(%d+)$')
  if holder == id and tonumber(number) <= tonumber(count) then
    mine[#mine + 1] = KEYS[i]
  elseif holder and hold > 0 then
    return '-9 ' .. string.format('%.0f', math.max(0, redis.call('PTTL', KEYS[i])))
  end
end
for _, key in ipairs(mine) do
  redis.call('UNLINK', key)
end
if hold == 0 then
  return '0'
end
local words = {'0'}
for i = 3, #KEYS do
  redis.call('HSET', KEYS[i], 'h', ARGV[2])
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
  words[i - 1] = string.match(redis.call('HGET', BASES, ARGV[i + 1]) or '', '^%d+')
  if not words[i - 1] then
    return '-1'
  end
end
return table.concat(words, ' ')
