-- The end of a commit: the base stands at its new version, tags that nobody needs any more go, and it is announced.
-- Needs swap.lua and `generation`, the new one; ARGV[10] is the channel.
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
