-- read: what a reader of tables needs to know, at one moment: the versions of the bases and the tags after a position.
--
-- Input
--   KEYS[1] config  KEYS[2] order  KEYS[3] log  KEYS[4] bases
--   ARGV[1] run  ARGV[2] epoch ("" for any)  ARGV[3] worker ("" for none)
--   ARGV[4] log position up to which the caller knows the tags; -1: give all tags that a base does not hold yet
-- Output: one line
--   0 epoch min membership others off end base… | tag…
--     `others`: min of the members other than ARGV[3], "-" when there is none; each base is number.share:version:generation
--   -1            job or log gone, or another run
--   -4            another epoch: sync first
--   -10           the position is older than what the log still has: start from the bases
-- Event: none.

--@include job
local ORDER, LOG, BASES = KEYS[2], KEYS[3], KEYS[4]
if ARGV[2] ~= '' and ARGV[2] ~= epoch then
  return '-4'
end
local length = redis.call('LLEN', LOG)
if length == 0 then
  return '-1'  -- every job has entries: it was evicted or deleted
end
local bases = redis.call('HGETALL', BASES)
local known = tonumber(ARGV[4])
local words = {}
local low = off + length
for i = 1, #bases, 2 do
  words[#words + 1] = bases[i] .. ':' .. bases[i + 1]
  low = math.min(low, tonumber(string.match(bases[i + 1], '^%d+')))
end
if known < 0 then
  known = low
end
-- a negative index would count from the tail and silently return the wrong tags
if known < off or known > off + length then
  return '-10'
end
local first = redis.call('ZRANGE', ORDER, 0, 1, 'WITHSCORES')
local others = first[1] == ARGV[3] and first[4] or first[1] ~= ARGV[3] and first[2] or '-'
words[#words + 1] = '|'
local head = string.format('0 %s %.0f %s %s %.0f %.0f %s', epoch, tonumber(first[2] or redis.call('HGET', CONFIG, 'floor')), membership, others, off,
  off + length, table.concat(words, ' '))
if known == off + length then
  return head
end
return head .. ' ' .. table.concat(redis.call('LRANGE', LOG, known - off, -1), ' ')
