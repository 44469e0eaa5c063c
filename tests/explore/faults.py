"""Planted faults: the protocol with one rule taken out, and where to look for the harm. The explorer finds each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .engine import shipped
from .moves import Bounds, Client

Scripts = dict[str, str]


@dataclass(frozen=True)
class Fault:
    """``edit`` breaks the scripts, ``client`` the process; ``breaks`` is a rule that must be reported broken."""

    name: str
    breaks: str
    bounds: Bounds
    edit: Callable[[Scripts], None] = lambda scripts: None
    client: Client = field(default_factory=Client)

    def scripts(self) -> Scripts:
        scripts = shipped()
        self.edit(scripts)
        return scripts


def without(script: str, old: str, new: str = "") -> Callable[[Scripts], None]:
    """Replace ``old``, which must be there once, by ``new``; script * means every one that has it."""

    def edit(scripts: Scripts) -> None:
        chosen = [name for name, text in scripts.items() if old in text] if script == "*" else [script]
        for name in chosen:
            if scripts[name].count(old) != 1:
                raise AssertionError(f"{name}.lua has {old!r} {scripts[name].count(old)} times: adapt the fault")
            scripts[name] = scripts[name].replace(old, new)
        if not chosen:
            raise AssertionError(f"no script has {old!r}: adapt the fault")

    return edit


def _reap_first(scripts: Scripts) -> None:
    text = scripts["sync"]
    start = text.index("-- the caller's lease before anybody's is judged")
    middle = text.index("for _, dead in ipairs")
    end = text.index("if changed then\n  announce()", middle)
    scripts["sync"] = text[:start] + text[middle:end] + text[start:middle] + text[end:]


#: A job that runs; nothing but its clocks.
CLOCKS = Bounds(joined=True, starts=0, time=False, leaving=False, evicting=False)
LEAVING = Bounds(joined=True, starts=1, time=False)
JOINING = Bounds(starts=2, clocks=1, time=False, leaving=False, evicting=False)
TIME = Bounds(joined=True, starts=0, leaving=False, evicting=False)
PATIENCE = Bounds(joined=True, starts=1, clocks=1, time=False, leaving=False, evicting=False, patience=True)
FALLING = Bounds(joined=True, starts=0, time=False, leaving=False, evicting=False, rollbacks=1, cuts=1, window=3)
FALLING_EARLY = Bounds(starts=1, staleness=1, time=False, leaving=False, evicting=False, rollbacks=1)
CHANGING = Bounds(joined=True, starts=0, time=False, leaving=False, evicting=False, other_staleness=(1,))

_FENCED = "local refused = refusal()"

FAULTS = [
    Fault("the client tests before the increment", "admission keeps the bound", CLOCKS,
          client=Client(tests_after=False)),
    Fault("no sync on a new connection", "losses are noticed", FALLING, client=Client(greets=False)),
    Fault("what another run announces is believed", "admission keeps the bound",
          Bounds(quorum=1, joined=True, starts=1, clocks=1, time=False, leaving=False, runs=True),
          client=Client(knows_its_run=False)),
    Fault("nothing is published on an eviction", "changes are published", LEAVING,
          without("leave", "  announce()\n")),
    Fault("nothing is published when the min moves", "changes are published", CLOCKS,
          without("tick", "if lowest() > stored then", "if false then")),
    Fault("nothing is published when a dead member is removed", "changes are published", TIME,
          without("sync", "  depart(dead, 'lost')\n  changed = true", "  depart(dead, 'lost')")),
    Fault("tick has no fence", "the dead change nothing", LEAVING, without("tick", _FENCED, "local refused = nil")),
    Fault("a late leave takes the successor out", "the dead change nothing", LEAVING,
          without("leave", _FENCED, f"{_FENCED}\nif string.sub(refused or '', 1, 2) == '-2' then refused = nil end")),
    Fault("sync has no fence", "the dead change nothing", LEAVING,
          without("sync", _FENCED, "local refused = nil")),
    Fault("incarnations are counted, and counted again after a rollback", "incarnations are unique",
          Bounds(joined=True, starts=1, time=False, leaving=False, evicting=False, rollbacks=1),
          without("join", "math.max(tonumber(config[10] or 0) + 1, us)", "tonumber(config[10] or 0) + 1")),
    Fault("a lease is judged before its holder's sync renews it", "the living are not reaped", TIME, _reap_first),
    Fault("a sync renews no lease", "the living are not reaped", TIME,
          without("sync", "  redis.call('ZADD', LEASES, string.format('%.0f', now + lease), worker)\n")),
    Fault("a frozen server is not noticed", "the living are not reaped", TIME,
          without("sync", "if gap > lease / 2 or gap < 0 then", "if false then")),
    Fault("a slow caller keeps the dead alive for ever", "the dead are reaped", TIME,
          without("sync", "leases[i + 1], leases[i]) == 1", "leases[i + 1], leases[i]) >= 0")),
    Fault("who has just come is evicted for another's standing still", "the living are not reaped", PATIENCE,
          without("sync", "<= tonumber(newest)", "<= math.huge")),
    Fault("the time of who holds the min does not begin anew when it moves", "the living are not reaped",
          replace(PATIENCE, clocks=2), without("sync", "local known = at == low", "local known = at")),
    Fault("nobody's patience ends", "who stands still is evicted", PATIENCE,
          without("sync", "        depart(holder, 'evicted')\n")),
    Fault("a late duplicate of a join supersedes its successor", "joins are fenced and resume", JOINING,
          without("join", "not replay and (tonumber(holder) or 0) ~= known", "false")),
    Fault("a replayed join is a new one", "replays are answered alike", JOINING,
          without("join", "local replay = holder_nonce == nonce", "local replay = false")),
    Fault("a new id enters at 0, below the floor", "min and floor never fall",
          LEAVING,
          without("join", "math.max(tonumber(redis.call('HGET', CLOCKS, worker) or 0), raise_floor())",
                  "tonumber(redis.call('HGET', CLOCKS, worker) or 0)")),
    Fault("a join leaves the membership version as it was", "membership is versioned", JOINING,
          without("join", "  change_membership()\n  if started", "  if started")),
    Fault("a store that is behind is brought up to the maximum without a word", "losses are noticed", FALLING,
          without("sync", "  if rolled or ahead then\n", "  if rolled then\n"
                  "    stored = math.max(stored, clock)\n"
                  "    redis.call('HSET', CLOCKS, worker, stored)\n"
                  "    redis.call('ZADD', ORDER, stored, worker)\n"
                  "  end\n  if false then\n")),
    Fault("the log's tail is not looked at", "losses are noticed", FALLING,
          without("sync", "rolled = position >= length or", "rolled = rolled or false and")),
    Fault("a tick of another epoch counts", "the epoch is known", FALLING,
          without("tick", "if stored < clock or epoch ~= ARGV[2] then", "if false then")),
    Fault("a restored worker pulls the min down within an epoch", "min and floor never fall", FALLING_EARLY,
          without("sync", "if not behind or math.max(stored, clock) < lowest() then", "if not behind then")),
    Fault("a quorum of restored workers does not start the job", "the quorum starts it", FALLING_EARLY,
          without("sync", "redis.call('HSET', CONFIG, 'started', '1')", "started = '0'")),
    Fault("the keys of a job with restored members expire", "keys agree",
          Bounds(workers=1, joined=True, starts=1, clocks=1, time=False, evicting=False, rollbacks=1),
          without("sync", "redis.call('PERSIST', KEYS[i])", "")),
    Fault("the job starts with the first worker", "the quorum starts it", JOINING,
          without("join", "quorum(ms, workers)", "true")),
    Fault("a run is replaced that has members", "joins are fenced and resume",
          Bounds(starts=2, clocks=1, time=False, evicting=False, runs=True),
          without("join", "if redis.call('ZCARD', ORDER) > 0 then\n    return", "if false then\n    return")),
    Fault("the staleness is set whatever it is", "replays are answered alike", CHANGING,
          without("configure", "if current[1] ~= ARGV[4] or gather", "if true or gather")),
    Fault("a change that comes late is made again", "changes are made once", CHANGING,
          without("configure", "if (current[2] or '0') ~= ARGV[3] then", "if false then")),
]  # fmt: skip
