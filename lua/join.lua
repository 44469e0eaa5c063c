-- join: makes the job if there is none, begins a new run if one is named, and makes worker w a member under a new
-- incarnation. A live holder of the id is superseded at once. The caller is admitted only once `started` is 1 and
-- clock − min ≤ staleness; until then it waits on the channel.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] ids  KEYS[5] leases  KEYS[6] log  KEYS[7] graced
--   KEYS[8] runs  KEYS[9] min (channel)
--   ARGV[1] schema version  ARGV[2] worker  ARGV[3] nonce (16 hex digits, random, one per
--     attempt to join; the id of the run, if this join begins one)
--   ARGV[4] incarnation last known to hold the id, 0 for none  ARGV[5] host  ARGV[6] pid
--   ARGV[7] name of the run ("" adopts the current one)
--   ARGV[8] workers  ARGV[9] staleness (-1: infinite)  ARGV[10] lease ms  ARGV[11] retain ms
--     each of these four: "" adopts what the job has, or the default 1, 0, 10000, 604800000
--   ARGV[12] reproducible: 1, 0, or "" as above (0): ids are fixed once `workers` have joined, and nobody is reaped
-- Output: one line
--   0 epoch min staleness membership stop started clock end incarnation run members workers lease reproducible position
--     tag [dropped]
--     `members` counts those present; `position tag` is the last entry of the log; `dropped` is the run that this one
--     replaced (its tables are the caller's to sweep, who then deletes that field of config). A replay (same nonce) answers the same while the member lives.
--   -1               some of the job's keys are gone: lost state
--   -3 why           a replay of a join whose member has left meanwhile: join anew with another nonce
--   -5 field stored given   the job was created with another value, or the run cannot begin
--   -6 incarnation host pid why   the id is not held by the incarnation stated in ARGV[4]: look again, then decide
--   -12 what         an argument that is not what it should be
--   -7 stored        the job was made by a client of another schema version
-- Event: min, when a member was added.

local CONFIG, CLOCKS, ORDER, IDS, LEASES, LOG, GRACED, RUNS, MIN =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local schema, worker, nonce, known, host, pid = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local name = ARGV[7]

-- what is wrong is refused before anything is written: an error in the middle would leave half a job
if #KEYS ~= 9 or #ARGV ~= 12 then
  return '-12 words'
elseif not string.match(nonce, '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$') then
  return '-12 nonce'
elseif not known or not string.match(worker, '^[%w._-]+$') or not string.match(host, '^[%w._-]+$')
  or not string.match(pid, '^%d+$') or not string.match(name, '^[%w._-]*$') then
  return '-12 identity'
end
for i, field in ipairs({'workers', 'staleness', 'lease', 'retain'}) do
  if not string.match(ARGV[7 + i], i == 2 and '^-?%d*$' or '^%d*$') then
    return '-12 ' .. field
  end
end
redis.call('TIME')  -- a user who may not ask learns it now
if not string.match(ARGV[12], '^[01]?$') or ARGV[12] == '1' and ARGV[9] ~= '0' then
  return '-12 reproducible'
end

local existing = redis.call('HMGET', CONFIG, 'schema', 'run', 'name', 'workers', 'created', 'lease', 'reproducible')
local run, dropped = existing[2], nil
local create = not run
if create then
  if redis.call('EXISTS', CLOCKS, ORDER, IDS, LOG, RUNS) > 0 then
    return '-1'
  end
elseif existing[1] ~= schema then
  return '-7 ' .. tostring(existing[1])
elseif name ~= '' and name ~= existing[3] then
  if redis.call('ZCARD', ORDER) > 0 then
    return '-5 run ' .. existing[3] .. ' ' .. name .. ' members'
  elseif redis.call('SISMEMBER', RUNS, name) == 1 then
    return '-5 run ' .. existing[3] .. ' ' .. name .. ' used'
  end
  create, dropped = true, run
else
  if redis.call('EXISTS', CLOCKS, IDS, LOG) < 3 or redis.call('ZCARD', ORDER) ~= redis.call('ZCARD', LEASES) then
    return '-1'  -- every job has those, and whoever is a member stands in each of the others
  end
  for i, field in ipairs({'workers', 'staleness', 'lease'}) do
    if ARGV[7 + i] ~= '' and ARGV[7 + i] ~= existing[3 + i] then
      return '-5 ' .. field .. ' ' .. existing[3 + i] .. ' ' .. ARGV[7 + i]
    end
  end
  if ARGV[12] ~= '' and (ARGV[12] == '1') ~= (existing[7] ~= '0') then
    return '-5 reproducible ' .. existing[7] .. ' ' .. ARGV[12]
  end
end

local record = not create and redis.call('HGET', IDS, worker) or ''
local holder, why, holder_nonce, holder_host, holder_pid = string.match(record, '^(%S+) (%S+) (%S+) (%S+) (%S+)')
local replay = holder_nonce == nonce
if replay and why ~= '-' then
  return '-3 ' .. why
elseif not replay and (tonumber(holder) or 0) ~= known then
  return table.concat({'-6', holder or '0', holder_host or '?', holder_pid or '0', why or '-'}, ' ')
elseif not create and existing[7] ~= '0' and not holder and redis.call('HLEN', IDS) >= tonumber(existing[4]) then
  return '-5 worker ' .. existing[4] .. ' ' .. worker
end

-- nothing refuses from here on
if create then
  if dropped then
    redis.call('DEL', CLOCKS, ORDER, IDS, LEASES, LOG, GRACED)
    redis.call('HSET', CONFIG, 'dropped', dropped)
  end
  if name == '' then
    name = '1'
  end
  local workers, wanted, lease, retain = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
  wanted = wanted ~= '' and wanted or '0'
  redis.call('HSET', CONFIG, 'schema', schema, 'run', nonce, 'name', name, 'epoch', '1', 'membership', '0',
    'workers', workers ~= '' and workers or '1', 'created', wanted, 'staleness', wanted,
    'lease', lease ~= '' and lease or '10000', 'retain', retain ~= '' and retain or '604800000',
    'floor', '0', 'off', '0', 'tables', '0', 'stop', '0', 'started', '0',
    'reproducible', ARGV[12] == '1' and '1' or '0')
  redis.call('SADD', RUNS, name)
  run = nonce
end

local config = redis.call('HMGET', CONFIG, 'run', 'epoch', 'staleness', 'membership', 'stop', 'started', 'off',
  'workers', 'lease', 'last', 'time', 'reproducible')
local epoch, staleness, membership, stop, started = config[2], config[3], config[4], config[5], config[6]
local off, workers, lease = tonumber(config[7]), tonumber(config[8]), tonumber(config[9])
--@include standing
--@include members
local clock
if replay then
  clock = tonumber(redis.call('HGET', CLOCKS, worker))
else
  local ms, us = now_ms()
  -- never reused: beyond every one handed out, and beyond those of a state that was rolled back or deleted
  local incarnation = math.max(tonumber(config[10] or 0) + 1, us)
  holder = string.format('%.0f', incarnation)
  clock = math.max(tonumber(redis.call('HGET', CLOCKS, worker) or 0), raise_floor())
  local text = string.format('%.0f', clock)
  redis.call('HSET', CLOCKS, worker, text)
  redis.call('ZADD', ORDER, text, worker)
  redis.call('HSET', IDS, worker, table.concat({holder, '-', nonce, host, pid, '-'}, ' '))
  redis.call('ZADD', LEASES, string.format('%.0f', ms + lease), worker)
  redis.call('ZREM', GRACED, worker)
  redis.call('HSET', CONFIG, 'last', holder)
  if not config[11] then
    redis.call('HSET', CONFIG, 'time', string.format('%.0f', ms))
  end
  append(table.concat({'j', worker, holder, text, '-', ''}, ':'))
  raise_floor()
  change_membership()
  if started == '0' and quorum(ms, workers) then
    start()
  end
  for i = 1, #KEYS - 1 do
    redis.call('PERSIST', KEYS[i])
  end
  announce()
end
return table.concat({standing(clock), holder, run, redis.call('ZCARD', ORDER), workers, string.format('%.0f', lease),
  config[12], last_entry(), redis.call('HGET', CONFIG, 'dropped') or nil}, ' ')
