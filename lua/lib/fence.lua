-- May this caller act? Includes job.lua's work. Nothing has been written yet when this refuses:
--   -1 job, run or clocks gone; -2 host pid: superseded; -3 why: departed; -4: store and caller disagree, sync first.
-- Needs locals CLOCKS, TAGS, IDS. Leaves `stored` (the clock the store has) and `tag` (position and last tag).
local worker, incarnation, clock = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local stored = tonumber(redis.call('HGET', CLOCKS, worker) or -1)
local tag = redis.call('HGET', TAGS, worker)
local function refusal()
  if stored < 0 or not tag then
    -- a store that lacks one worker was rolled back; a store that lacks the whole hash has lost the job
    return redis.call('EXISTS', CLOCKS, TAGS) == 2 and '-4' or '-1'
  end
  local kind, holder = string.match(tag, '^%d+ (%a):[^:]*:(%d+)')
  holder = tonumber(holder)
  if holder > incarnation then
    local _, _, host, pid = string.match(redis.call('HGET', IDS, worker) or '', '^(%S+) (%S+) (%S+) (%S+)')
    return '-2 ' .. (host or '?') .. ' ' .. (pid or '0')
  end
  if holder == incarnation and kind == 'l' then
    return '-3 ' .. (string.match(tag, ':(%a+)$') or 'lost')
  end
  if holder < incarnation or stored < clock or epoch ~= ARGV[2] then
    return '-4'
  end
end
