"""Runs the shipped scripts from a given state of the job's keys, and says what became of them.

One call carries a state and many moves: the server writes the state's keys, runs a script, reads the keys back, runs
the same call once more (a replay), and so on for every move. The scripts' text is untouched; only what they see of
``redis`` stands between: TIME answers what the explorer wants, and what they PUBLISH is noted on its way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ssp_redis.connection import Endpoint, ReplyError, command
from ssp_redis.keys import CONTROL
from ssp_redis.lua import source

SCRIPTS = ("join", "tick", "sync", "leave", "configure")

#: How each key is written back and read; the rest are hashes.
_KINDS = {"order": "zset", "leases": "zset", "log": "list", "graced": "zset", "runs": "set"}

#: TIME in every state: whole seconds, and the microseconds that each state counts up, so that incarnations differ.
SECONDS = 2_000_000_000
NOW_MS = SECONDS * 1000

Server = dict[str, Any]

_encode = json.JSONEncoder(separators=(",", ":")).encode

_FRAME = """
local state, moves = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local names, kinds = %(names)s, %(kinds)s
local key, ttl = {}, %(retain)d
for i, name in ipairs(names) do key[name] = KEYS[i] end
key.min = KEYS[#names + 1]
local time, published
local seen = {call = function(name, ...)
  if name == 'TIME' then
    return time
  elseif name == 'PUBLISH' then
    published[#published + 1] = select(2, ...)
  end
  return redis.call(name, ...)
end}
local write = {zset = 'ZADD', list = 'RPUSH', set = 'SADD', hash = 'HSET'}
local function restore()
  redis.call('DEL', unpack(KEYS, 1, #names))
  for i, name in ipairs(names) do
    if #state[name] > 0 then
      redis.call(write[kinds[i]], KEYS[i], unpack(state[name]))
      if state.expires == 1 then
        redis.call('PEXPIRE', KEYS[i], ttl)
      end
    end
  end
end
local function dump()
  local now = {}
  local kept, going = 0, 0
  for i, name in ipairs(names) do
    local kind = kinds[i]
    if kind == 'hash' then
      now[name] = redis.call('HGETALL', KEYS[i])
    elseif kind == 'list' then
      now[name] = redis.call('LRANGE', KEYS[i], 0, -1)
    elseif kind == 'set' then
      now[name] = redis.call('SMEMBERS', KEYS[i])
    else
      local flat = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
      for j = 1, #flat, 2 do
        flat[j], flat[j + 1] = flat[j + 1], flat[j]
      end
      now[name] = flat
    end
    local left = redis.call('PTTL', KEYS[i])
    if left == -1 then kept = 1 elseif left > 0 then going = 1 end
  end
  now.expires = going == 1 and 1 + kept or 0
  return cjson.encode(now)
end
local scripts = {}
%(scripts)s
local results, fresh, original = {}, false, nil
for i, move in ipairs(moves) do
  if not fresh then
    restore()
    original = original or dump()
  end
  time, published = {move[3], move[4]}, {}
  local run, keys = scripts[move[1]][1], scripts[move[1]][2]
  local answer = run(keys, move[2], seen)
  local after, messages = dump(), published
  published = {}
  local again = run(keys, move[2], seen)
  local still = dump()
  fresh = after == original and still == original
  results[i] = {answer, messages, after == original and '' or after, again, still == after and '' or still, #published}
end
redis.call('DEL', unpack(KEYS, 1, #names))
return cjson.encode(results)
"""


class Call(NamedTuple):
    """A script with its arguments, and the microseconds after the engine's second that TIME shall show."""

    script: str
    arguments: list[str]
    microseconds: int


class Outcome(NamedTuple):
    """What a call did: answer, what was published, the keys after it (None: as before); and all that of a replay."""

    answer: str
    published: list[str]
    after: Server | None
    again: str
    #: The keys after the replay, None when it changed nothing.
    after_again: Server | None
    published_again: int


def shipped() -> dict[str, str]:
    """The control scripts as they ship."""
    return {name: source(name) for name in SCRIPTS}


def keys_of(text: str) -> list[str]:
    """The names of a script's KEYS, as its header states them."""
    return [name for _, name in sorted((int(i), name) for i, name in re.findall(r"KEYS\[(\d+)\] ([a-z]+)", text))]


def arguments_of(text: str) -> int:
    """How many arguments a script takes, as its header states it."""
    return max(int(number) for number in re.findall(r"ARGV\[(\d+)\]", text))


def _lua_list(words: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{word}'" for word in words) + "}"


def _function(name: str, text: str) -> str:
    keys = ", ".join(f"key.{key}" for key in keys_of(text))
    return f"scripts.{name} = {{function(KEYS, ARGV, redis)\n{text}\nend, {{{keys}}}}}"


def parse(text: str) -> Server:
    """A dump as Python: hashes and sorted sets as dicts, the log as a list, sets sorted."""
    raw = json.loads(text)
    server: Server = {"expires": raw["expires"]}
    for name in CONTROL:
        flat = raw[name] or []
        kind = _KINDS.get(name, "hash")
        if kind == "list":
            server[name] = flat
        elif kind == "set":
            server[name] = sorted(flat)
        elif kind == "hash":
            server[name] = dict(zip(flat[::2], flat[1::2], strict=True))
        else:
            server[name] = dict(zip(flat[1::2], flat[::2], strict=True))
    return server


def flatten(server: Server) -> Server:
    """The reverse of :func:`parse`, in one order for equal states."""
    flat: Server = {"expires": server["expires"]}
    for name in CONTROL:
        value = server[name]
        kind = _KINDS.get(name, "hash")
        if kind == "hash":
            flat[name] = [word for item in sorted(value.items()) for word in item]
        elif kind == "zset":
            flat[name] = [word for member, score in sorted(value.items()) for word in (score, member)]
        else:
            flat[name] = value
    return flat


def parse_keys(client: Any, keys: list[str]) -> Server:
    """The same of a job's keys as a client sees them."""

    def text(value: bytes | float) -> str:
        return value.decode() if isinstance(value, bytes) else f"{value:.0f}"

    server: Server = {}
    kinds = dict(zip(CONTROL, keys, strict=False))
    for name, key in kinds.items():
        kind = _KINDS.get(name, "hash")
        if kind == "hash":
            server[name] = {text(word): text(value) for word, value in client.hgetall(key).items()}
        elif kind == "zset":
            server[name] = {text(word): text(score) for word, score in client.zrange(key, 0, -1, withscores=True)}
        else:
            found = client.lrange(key, 0, -1) if kind == "list" else sorted(client.smembers(key))
            server[name] = [text(word) for word in found]
    left = [client.pttl(key) for key in kinds.values()]
    server["expires"] = 1 + (-1 in left) if any(ms > 0 for ms in left) else 0
    return server


class Engine:
    """A connection to the server, and the scripts (or mutations of them) framed for exploring."""

    def __init__(self, url: str, scripts: dict[str, str] | None = None, seconds: int = SECONDS) -> None:
        self._seconds = seconds
        self._wire = Endpoint(url, timeout=60).connect()
        scripts = shipped() if scripts is None else scripts
        self._keys = {name: keys_of(text) for name, text in scripts.items()}
        self._arguments = {name: arguments_of(text) for name, text in scripts.items()}
        self._text = _FRAME % {
            "names": _lua_list(CONTROL),
            "kinds": _lua_list(_KINDS.get(name, "hash") for name in CONTROL),
            "retain": 604800000,
            "scripts": "\n".join(_function(name, text) for name, text in scripts.items()),
        }
        self._sha = hashlib.sha1(self._text.encode()).hexdigest()
        self._names = [f"ssp:{{explorer}}:{name}" for name in (*CONTROL, "min")]
        if self._wire.call("SCRIPT", "LOAD", self._text).decode() != self._sha:
            raise AssertionError("the server has another text than was sent")

    def keys_of(self, script: str) -> list[str]:
        """The names of a script's KEYS."""
        return self._keys[script]

    def padded(self, script: str, arguments: list[str]) -> list[str]:
        """The arguments, the last of which may be left out: empty ones adopt what the job has."""
        return arguments + [""] * (self._arguments[script] - len(arguments))

    def _stated(self, call: Call) -> list[object]:
        seconds, microseconds = divmod(call.microseconds, 1_000_000)
        arguments = self.padded(call.script, call.arguments)
        return [call.script, arguments, str(self._seconds + seconds), str(microseconds)]

    def close(self) -> None:
        self._wire.close()

    def run(self, server: Server, calls: list[Call]) -> list[Outcome]:
        """The outcomes of ``calls``, each from ``server``."""
        return next(self.run_all([(server, calls)]))

    def run_all(self, batches: Iterable[tuple[Server, list[Call]]], ahead: int = 6) -> Iterator[list[Outcome]]:
        """The outcomes of every batch, in order; the server works ahead while the caller looks at them."""
        waiting = 0
        for server, calls in batches:
            if waiting == ahead:
                yield self._read()
                waiting -= 1
            words = (len(self._names), *self._names, _encode(flatten(server)), _encode(list(map(self._stated, calls))))
            self._wire.send(command("EVALSHA", self._sha, *words))
            waiting += 1
        for _ in range(waiting):
            yield self._read()

    def _read(self) -> list[Outcome]:
        reply = self._wire.read()
        if isinstance(reply, ReplyError):
            raise reply
        return [
            Outcome(
                answer,
                list(published),
                parse(after) if after else None,
                again,
                parse(still) if still else None,
                count,
            )
            for answer, published, after, again, still, count in json.loads(reply)
        ]
