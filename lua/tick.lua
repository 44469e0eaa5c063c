-- tick: "worker w, incarnation i, at clock c, has completed clock c' > c". The hot path: touches neither TIME nor leases.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] ids  KEYS[5] log  KEYS[6] min (channel)
--   ARGV[1] run  ARGV[2] epoch  ARGV[3] worker  ARGV[4] incarnation  ARGV[5] clock the caller knows
--   ARGV[6] clock wanted  ARGV[7] note for the tag: "ring:tables", tiny deltas included ("-:" when nothing was pushed)
--   ARGV[8] log position up to which the caller knows the tags, or -1 when it does not ask for them
-- Output: one line
--   0 epoch min staleness membership stop started clock end [others tags…]
--     the clock is there, now or already before (a replay answers the same). With ARGV[8] ≥ 0: `others` is the min of
--     the other members ("-" when there is none), then the tags since that position, or "!" when they are trimmed
--     or too many: start from the base.
--   -1 | -2 host pid | -3 why | -4   refused before any write (lua/README.md, codes)
-- Event: min, only when the min moved; at staleness 0 after a push with the end of the log and its last tags, which
--   saves those who wait a question.

--@include job
local CLOCKS, ORDER, IDS, LOG, MIN = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
--@include fence
--@include standing

local refused = refusal()
if refused then
  return refused
end
local wanted, known = tonumber(ARGV[6]), tonumber(ARGV[8])
-- the two slowest tell the min, and the min of the others
local first = redis.call('ZRANGE', ORDER, 0, 1, 'WITHSCORES')
local others = first[1] == worker and first[4] or first[1] ~= worker and first[2] or nil
if stored < wanted then
  if stored ~= clock then
    return '-4'
  elseif not first[1] or append('t:' .. worker .. ':' .. ARGV[4] .. ':' .. ARGV[6] .. ':' .. ARGV[7], true) == 0 then
    -- evicted or deleted: nobody would know who holds the min, or tags would stand where others have stood
    return '-1'
  end
  redis.call('HSET', CLOCKS, worker, ARGV[6])
  redis.call('ZADD', ORDER, ARGV[6], worker)
  if started == '1' then
    low = others and tonumber(others) < wanted and others or ARGV[6]
  end
  -- The min moved exactly if it is now above the clock this worker had: only the lowest can hold the min down.
  if lowest() > stored then
    local more
    if staleness == '0' and ARGV[7] ~= '-:' then
      local last = math.min(redis.call('ZCARD', ORDER), 16)
      more = ' ' .. off + length .. ' ' .. table.concat(redis.call('LRANGE', LOG, -last, -1), ' ')
    end
    announce(more and #more < 900 and more)
  end
  stored = ARGV[6]
end
local answer = standing(stored)
if known < 0 then
  return answer
end
answer = answer .. ' ' .. (others or '-')
-- a negative index would count from the tail and silently return the wrong tags
if known < off or off + length - known > 4096 then
  return answer .. ' !'
elseif known < off + length then
  return answer .. ' ' .. table.concat(redis.call('LRANGE', LOG, known - off, -1), ' ')
end
return answer
