-- leave: takes a member out, with the reason. Its clock and its committed deltas stay. Evicting is a leave stated by
-- somebody else, naming the incarnation that is meant. Repeating it succeeds.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] ids  KEYS[5] leases  KEYS[6] log  KEYS[7] graced
--   KEYS[8] runs  KEYS[9] min (channel)
--   ARGV[1] run  ARGV[2] epoch  ARGV[3] worker  ARGV[4] incarnation  ARGV[5] clock the caller knows
--   ARGV[6] why: done, left, evicted
-- Output: one line
--   0 epoch min staleness membership stop started clock end members
--   -1 | -2 host pid | -4   refused before any write (lua/README.md, codes)
-- Event: min, when the member was there.

--@include job
local CLOCKS, ORDER, IDS, LEASES, LOG, GRACED, MIN = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[9]
--@include fence
--@include standing
--@include members
local refused = refusal()
if refused and string.sub(refused, 1, 2) ~= '-3' then
  return refused
end
if not refused then
  if redis.call('EXISTS', LOG) == 0 then
    return '-1'  -- evicted or deleted: a tag would stand where others have stood
  end
  depart(worker, ARGV[6])
  announce()
end
return standing(stored) .. ' ' .. redis.call('ZCARD', ORDER)
