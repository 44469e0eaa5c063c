-- restore: begins a new run of a job that nobody is a member of, with tables and clocks of somebody's choice (those of
-- a snapshot). The parts of the tables have been written before, under a run that nobody knows of; this makes them a
-- job's, all at once. Makes the job if there is none. Every id resumes at its clock, a new one enters at the floor.
--
-- Input
--   KEYS[1] config  KEYS[2] clocks  KEYS[3] order  KEYS[4] ids  KEYS[5] leases  KEYS[6] log  KEYS[7] graced
--   KEYS[8] runs  KEYS[9] tables  KEYS[10] bases   (the last two of the new run)
--   KEYS[11…] every part of every table, in order: of a dense one the blocks of its base (generation 0), of a sparse
--     one a scratch hash for each share; then, for each of these hashes, in the same order, the one it becomes
--   ARGV[1] schema version  ARGV[2] id of the run that this one replaces ("" : there is no such job)
--   ARGV[3] id of the new run: 16 hex digits, random, kept for repetitions  ARGV[4] its name
--   ARGV[5] workers  ARGV[6] staleness as created  ARGV[7] staleness (both: -1 infinite)  ARGV[8] lease ms
--   ARGV[9] retain ms  ARGV[10] reproducible: 0, 1, or 2 (broken)  ARGV[11] floor
--   ARGV[12] number n of tables  ARGV[13] number m of ids
--   ARGV[14…] n times: name, description, number of shares; then m times: worker, clock, why it left; then what each
--     part must be, in the order of KEYS: its header, and for a share the number of its rows after that
-- Output: one line
--   0 [dropped]             the run is there, without members; `dropped` is the run it replaced (its tables are the
--                           caller's to sweep, who then deletes that field of config). A replay answers the same.
--   -1                      some of the job's keys are gone: delete what is left of it first
--   -5 run old new members|used   the job has members, or a run of that name was used
--   -7 stored               the job was made by a client of another schema version
--   -8 [run]                the job's run is another than stated
--   -11                     a part is missing or is not what was stated: write it again
--   -12 what                an argument that is not what it should be
-- Event: none, for there is nobody to hear it.

local CONFIG, CLOCKS, ORDER, IDS, LEASES, LOG, GRACED, RUNS, TABLES, BASES =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local schema, replaces, run, name, retain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[9]
local tables, ids = tonumber(ARGV[12]), tonumber(ARGV[13])
local first_id = 14 + 3 * (tables or 0)
local first_header = first_id + 3 * (ids or 0)
local parts, shares = #ARGV - first_header + 1, {}
for i = 1, parts do
  if string.byte(ARGV[first_header - 1 + i], 6) == 4 then -- the header of a share
    shares[#shares + 1] = i
  end
end

if not tables or not ids or ids < 1 or #KEYS ~= 10 + parts + #shares then
  return '-12 words'
elseif not string.match(run, '^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$') or not string.match(name, '^[%w._-]+$') then
  return '-12 run'
end
for i, field in ipairs({'workers', 'created', 'staleness', 'lease', 'retain', 'reproducible', 'floor'}) do
  if not string.match(ARGV[4 + i], (i == 2 or i == 3) and '^-?%d+$' or '^%d+$') then
    return '-12 ' .. field
  end
end
for i = first_id, first_header - 1, 3 do
  if not string.match(ARGV[i], '^[%w._-]+$') or not string.match(ARGV[i + 1], '^%d+$')
    or not string.match(ARGV[i + 2], '^[%w._-]+$') then
    return '-12 clocks'
  end
end

local existing = redis.call('HMGET', CONFIG, 'schema', 'run', 'name', 'last', 'dropped')
if existing[2] == run then
  return '0' .. (existing[5] and ' ' .. existing[5] or '')
elseif not existing[2] then
  if redis.call('EXISTS', CLOCKS, ORDER, IDS, LOG, RUNS) > 0 then
    return '-1'
  end
elseif existing[1] ~= schema then
  return '-7 ' .. tostring(existing[1])
end
if (existing[2] or '') ~= replaces then
  return '-8' .. (existing[2] and ' ' .. existing[2] or '')
elseif redis.call('ZCARD', ORDER) > 0 then
  return '-5 run ' .. existing[3] .. ' ' .. name .. ' members'
elseif redis.call('SISMEMBER', RUNS, name) == 1 then
  return '-5 run ' .. tostring(existing[3] or '-') .. ' ' .. name .. ' used'
end
local becomes = {}
for i, part in ipairs(shares) do
  becomes[part] = KEYS[10 + parts + i]
end
for i = 1, parts do
  local key, stated = KEYS[10 + i], ARGV[first_header - 1 + i]
  if becomes[i] then
    local rows = string.format('%.0f', redis.call('HLEN', key) - 1)
    if redis.call('HGET', key, 'h') ~= string.sub(stated, 1, 64) or rows ~= string.sub(stated, 65) then
      return '-11'
    end
  elseif redis.call('GETRANGE', key, 0, #stated - 1) ~= stated then
    return '-11'
  end
end

-- nothing refuses from here on
redis.call('DEL', CLOCKS, ORDER, IDS, LEASES, LOG, GRACED)
if existing[2] then
  redis.call('HSET', CONFIG, 'dropped', existing[2])
end
for part, key in pairs(becomes) do
  redis.call('RENAME', KEYS[10 + part], key)
end
local time = redis.call('TIME')
local ms = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
-- Each id gets an incarnation that nobody ever had, so that a late join of another run finds it held by somebody else.
local last = math.max(tonumber(existing[4] or 0), tonumber(time[1]) * 1000000 + tonumber(time[2]))
for i = first_id, first_header - 1, 3 do
  last = last + 1
  local worker, clock, why, incarnation = ARGV[i], ARGV[i + 1], ARGV[i + 2], string.format('%.0f', last)
  redis.call('HSET', CLOCKS, worker, clock)
  redis.call('HSET', IDS, worker, incarnation .. ' ' .. why .. ' - - 0 -')
  redis.call('RPUSH', LOG, table.concat({'l', worker, incarnation, clock, '-', why}, ':'))
end
for table_number = 0, tables - 1 do
  local at = 14 + 3 * table_number
  redis.call('HSET', TABLES, ARGV[at], string.format('%.0f ready 0 0 %s', table_number, ARGV[at + 1]))
  -- generation 0 of a sparse table is one of which no row was ever touched
  local generation = string.find(ARGV[at + 1], '^sparse:') and ':1' or ':0'
  for share = 0, tonumber(ARGV[at + 2]) - 1 do
    redis.call('HSET', BASES, string.format('%.0f.%.0f', table_number, share), ARGV[13] .. generation)
  end
end
redis.call('HSET', CONFIG, 'schema', schema, 'run', run, 'name', name, 'epoch', '1', 'membership', '0',
  'workers', ARGV[5], 'created', ARGV[6], 'staleness', ARGV[7], 'lease', ARGV[8], 'retain', retain,
  'reproducible', ARGV[10], 'floor', ARGV[11], 'off', '0', 'tables', ARGV[12], 'stop', '0', 'started', '0',
  'last', string.format('%.0f', last), 'time', ms)
redis.call('SADD', RUNS, name)
-- nobody is there: all of it stays readable for `retain`, then goes; a join takes the expiry off again
for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], retain)
end
return '0' .. (existing[2] and ' ' .. existing[2] or '')
