-- May this caller act? Includes job.lua's work. Nothing has been written yet when this refuses:
--   -1 job, run or clocks gone; -2 host pid: superseded; -3 why: departed; -4: store and caller disagree, sync first.
-- Needs locals CLOCKS, IDS. Leaves `stored` (the clock the store has) and `record` (what it remembers of the id).
local worker, incarnation, clock = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local stored = tonumber(redis.call('HGET', CLOCKS, worker) or -1)
local record = redis.call('HGET', IDS, worker)
local function refusal()
  if stored < 0 or not record then
    -- a store that lacks one worker was rolled back; a store that lacks the whole hash has lost the job
    return redis.call('EXISTS', CLOCKS, IDS) == 2 and '-4' or '-1'
  end
  -- the usual case without taking the record apart, which would be a tenth of a tick
  local start = ARGV[4] .. ' - '
  if string.sub(record, 1, #start) ~= start then
    local holder, why, host, pid = string.match(record, '^(%d+) (%S+) %S+ (%S+) (%S+)')
    holder = tonumber(holder)
    if holder > incarnation then
      return '-2 ' .. host .. ' ' .. pid
    end
    return holder == incarnation and '-3 ' .. why or '-4'
  end
  if stored < clock or epoch ~= ARGV[2] then
    return '-4'
  end
end
