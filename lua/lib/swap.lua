-- The compare of a commit's compare-and-swap: may this caller, and is the base still the one it replaces? Refuses before
-- any write. Needs fence.lua, locals LOG and BASES, and ARGV[6…9] as `commit` has them. Leaves `version` and `generation`
-- of the base that is replaced, and `new`, the version to come.
local refused = refusal()
if refused then
  return refused
end
local current = redis.call('HGET', BASES, ARGV[6])
if not current then
  return '-1'
elseif current ~= ARGV[7] then
  return '-8 ' .. string.gsub(current, ':', ' ')
end
local version, generation = string.match(current, '^(%d+):(%d+)$')
local new, length = tonumber(ARGV[8]), redis.call('LLEN', LOG)
if new <= tonumber(version) then
  return '-8 ' .. string.gsub(current, ':', ' ')
elseif new > off + length or redis.call('LINDEX', LOG, new - 1 - off - length) ~= ARGV[9] then
  return '-4'
end
