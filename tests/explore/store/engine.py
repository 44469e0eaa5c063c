"""Runs the shipped scripts from a given state of the keys of a job and its tables.

As ``tests.explore.engine``, but with keys that come and go (slots, scratch, bases), and each call once: what is said
twice is a move of its own here. The same call from the same keys is asked of the server once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from ssp_redis.connection import Endpoint
from ssp_redis.keys import CONTROL
from ssp_redis.lua import source

from ..engine import SECONDS, keys_of

SCRIPTS = ("join", "tick", "sync", "leave", "read", "commit", "claim", "publish")
#: Keys that are always there, and those of which some may be.
FIXED = (*CONTROL, "bases", "tables", "rings")
_KINDS = {"order": "zset", "leases": "zset", "log": "list", "graced": "zset", "runs": "set", "rings": "set"}

_FRAME = """
local state, moves = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local fixed, kinds, prefix = %(fixed)s, %(kinds)s, KEYS[1]
local write = {zset = 'ZADD', list = 'RPUSH', set = 'SADD', hash = 'HSET'}
local time, published
local seen = {call = function(name, ...)
  if name == 'TIME' then
    return time
  elseif name == 'PUBLISH' then
    published[#published + 1] = {...}
  end
  return redis.call(name, ...)
end}
local blobs = {}
for _, blob in ipairs(state.blobs) do blobs[blob[1]] = blob[2] end
for _, move in ipairs(moves) do
  for i, name in ipairs(move[3]) do
    blobs[name] = blobs[name] or false
  end
end
local function clear()
  for _, name in ipairs(fixed) do redis.call('DEL', prefix .. name) end
  for name in pairs(blobs) do redis.call('DEL', prefix .. name) end
end
local function restore()
  clear()
  for i, name in ipairs(fixed) do
    if #state.fixed[i] > 0 then redis.call(write[kinds[i]], prefix .. name, unpack(state.fixed[i])) end
  end
  for name, text in pairs(blobs) do
    if text then redis.call('SET', prefix .. name, text) end
  end
end
local function dump()
  local now = {}
  for i, name in ipairs(fixed) do
    local key, kind = prefix .. name, kinds[i]
    if kind == 'hash' then
      now[i] = redis.call('HGETALL', key)
    elseif kind == 'list' then
      now[i] = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'set' then
      now[i] = redis.call('SMEMBERS', key)
    else
      now[i] = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
      for j = 1, #now[i], 2 do
        now[i][j], now[i][j + 1] = now[i][j + 1], now[i][j]
      end
    end
  end
  local found = {}
  for name in pairs(blobs) do
    local text = redis.call('GET', prefix .. name)
    if text then found[#found + 1] = {name, text} end
  end
  return {now, found}
end
local scripts = {}
%(scripts)s
local results = {}
for i, move in ipairs(moves) do
  restore()
  local before = cjson.encode(dump())
  time, published = {move[4], move[5]}, {}
  local names = {}
  for j, name in ipairs(scripts[move[1]][2]) do names[j] = prefix .. name end
  for j, name in ipairs(move[3]) do names[#names + 1] = prefix .. name end
  local fine, answer = pcall(scripts[move[1]][1], names, move[2], seen)
  if not fine then answer = 'ERR' end
  local after = dump()
  results[i] = {answer, published, cjson.encode(after) == before and '' or after}
end
clear()
return cjson.encode(results)
"""

_PREFIX = "ssp:{explorer}:"
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Server(NamedTuple):
    """What the server keeps: the fixed keys as flat words, equal for equal states, and blobs by their names."""

    fixed: tuple[tuple[str, ...], ...]
    blobs: tuple[tuple[str, str], ...]

    def blob(self, name: str) -> str:
        """The text of a blob, empty when there is none."""
        return dict(self.blobs).get(name, "")

    def storing(self, name: str, text: str) -> Server:
        """After a SET, or (empty) an UNLINK."""
        blobs = dict(self.blobs)
        blobs.pop(name, None)
        if text:
            blobs[name] = text
        return self._replace(blobs=tuple(sorted(blobs.items())))

    @property
    def rings(self) -> tuple[str, ...]:
        """The names of rings that may hold deltas."""
        return self.fixed[-1]

    def naming(self, *rings: str) -> Server:
        """With another list of rings."""
        return self.having(rings=tuple(sorted(set(rings))))

    def having(self, **keys: tuple[str, ...]) -> Server:
        """With other words in fixed keys."""
        return self._replace(fixed=tuple(keys.get(name, words) for name, words in zip(FIXED, self.fixed, strict=True)))


class Call(NamedTuple):
    """A script, its arguments, and the names of the KEYS that follow the fixed ones."""

    script: str
    arguments: tuple[str, ...]
    blobs: tuple[str, ...] = ()
    microseconds: int = 0


class Outcome(NamedTuple):
    """Answer, messages (channel, text), and what the server keeps then."""

    answer: str
    published: tuple[tuple[str, str], ...]
    server: Server


def shipped() -> dict[str, str]:
    """The scripts as they ship."""
    return {name: source(name) for name in SCRIPTS}


def _lua_list(words: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{word}'" for word in words) + "}"


def _fixed_keys(text: str) -> list[str]:
    """The names of a script's KEYS, but for blobs, of which there are any number."""
    return [name for name in keys_of(text) if name in FIXED or name == "min"]


def _pairs(flat: list[str]) -> tuple[str, ...]:
    items = sorted(zip(flat[::2], flat[1::2], strict=True))
    return tuple(word for item in items for word in item)


def _server(raw: list[list[list[str]]]) -> Server:
    fixed = []
    for name, flat in zip(FIXED, raw[0], strict=True):
        kind = _KINDS.get(name, "hash")
        words = flat or []
        if kind == "list":
            fixed.append(tuple(words))
        else:
            fixed.append(tuple(sorted(words)) if kind == "set" else _pairs(words))
    return Server(tuple(fixed), tuple(sorted((name, text) for name, text in raw[1] or [])))


class Engine:
    """A connection to the server, and the scripts (or mutations of them) framed for exploring."""

    def __init__(self, url: str, scripts: dict[str, str] | None = None, keep: int = 256) -> None:
        """``keep``: of tags that every base holds, how many stay; the scripts as they ship keep 256."""
        scripts = shipped() if scripts is None else scripts
        if scripts["commit"].count("low - 256 - off") != 1:
            raise AssertionError("commit.lua keeps another number of tags: adapt the explorer")
        scripts = scripts | {"commit": scripts["commit"].replace("low - 256 - off", f"low - {keep} - off")}
        self._wire = Endpoint(url, timeout=60).connect()
        text = _FRAME % {
            "fixed": _lua_list(FIXED),
            "kinds": _lua_list(_KINDS.get(name, "hash") for name in FIXED),
            "scripts": "\n".join(
                f"scripts.{name} = {{function(KEYS, ARGV, redis)\n{text}\nend, {_lua_list(_fixed_keys(text))}}}"
                for name, text in scripts.items()
            ),
        }
        self._sha = self._wire.call("SCRIPT", "LOAD", text).decode()
        self._known: dict[tuple[Server, Call], Outcome] = {}
        #: Calls that the server was really asked.
        self.asked = 0

    def close(self) -> None:
        self._wire.close()

    def run(self, server: Server, calls: list[Call]) -> list[Outcome]:
        """The outcomes of ``calls``, each from ``server``."""
        missing = list(dict.fromkeys(call for call in calls if (server, call) not in self._known))
        if missing:
            moves = [
                [call.script, call.arguments, call.blobs, str(SECONDS), str(call.microseconds)] for call in missing
            ]
            state = _encode({"fixed": server.fixed, "blobs": server.blobs})
            reply = self._wire.call("EVALSHA", self._sha, 1, _PREFIX, state, _encode(moves))
            self.asked += len(missing)
            for call, (answer, published, after) in zip(missing, json.loads(reply), strict=True):
                messages = tuple((channel.removeprefix(_PREFIX), text) for channel, text in published or [])
                outcome = Outcome(answer, messages, _server(after) if after else server)
                self._known[server, call] = outcome
        return [self._known[server, call] for call in calls]
