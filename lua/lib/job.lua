-- The job's config, read once; every script that includes this takes KEYS config first and ARGV run first.
-- Refuses (-1) a job that is gone and a run that is another.
local CONFIG = KEYS[1]
local config = redis.call('HMGET', CONFIG, 'run', 'epoch', 'staleness', 'membership', 'stop', 'started', 'off')
if config[1] ~= ARGV[1] then
  return '-1'
end
local run, epoch, staleness, membership, stop, started = config[1], config[2], config[3], config[4], config[5], config[6]
local off = tonumber(config[7])
