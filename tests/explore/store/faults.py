"""Planted faults: the store with one rule taken out, and where to look for the harm. The explorer finds each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..faults import Scripts, without
from .client import Client
from .engine import shipped
from .moves import Bounds


@dataclass(frozen=True)
class Fault:
    """``edit`` breaks the scripts, ``client`` names flags of the client; ``breaks`` is a rule that must be broken."""

    name: str
    breaks: str
    bounds: Bounds
    edit: Callable[[Scripts], None] = lambda scripts: None
    client: dict[str, Any] = field(default_factory=dict)
    #: What happens first.
    story: tuple[str, ...] = ()

    def scripts(self) -> Scripts:
        scripts = shipped()
        self.edit(scripts)
        return scripts

    def behaviour(self) -> Client:
        return replace(self.bounds.client(), **self.client)


def _says(text: str) -> tuple[str, ...]:
    """A story in short: "0 SETs; 0 ticks" for "worker 0 SETs …", "worker 0 ticks …"."""
    return tuple(f"worker {part}" if part[0].isdigit() else part for part in (part.strip() for part in text.split(";")))


PLAIN = Bounds()
#: Only worker 0 pushes, both fold.
FOLDING = Bounds(silent="1", clocks=2, staleness=1, slots=2)
REPRODUCIBLE = Bounds(reproducible=True, slots=2)
#: Only worker 0 pushes; somebody sweeps.
SWEEPING = Bounds(silent="1", clocks=1, sweeps=1)
#: Worker 0 is late and has no copy of its own; what the others have pushed is published, at one clock and the next.
LATE = Bounds(workers=3, joined=3, silent="0", folders="1")
_VIEW = "{0} reads; {0} brings; {0} GETs R:b; {0} GETs R:d"
_EARLY = (
    "1 SETs R:d; 1 ticks; 2 SETs R:d; 2 ticks; 0 ticks; 1 reads; 1 reads; 1 brings; 1 GETs R:b; 1 GETs R:d; "
    "1 SETs R:x; 1 commits; 1 SETs R:d; 1 ticks; 1 reads; 1 brings; 1 SETs R:x; 1 commits"
)
_SCRATCH = f"0 SETs R:d; 0 ticks; {_VIEW.format(1)}; 1 SETs R:x"

FAULTS = [
    Fault("a commit without compare-and-swap", "bases are exact", FOLDING,
          without("commit", "elseif current ~= ARGV[7] then", "elseif false then"),
          story=_says(f"{_SCRATCH}; 0 SETs R:d; 0 ticks")),
    Fault("who comes second in a commit cleans up", "scratch stays until its commit", replace(FOLDING, drops=1),
          client={"cleans": True},
          story=_says(f"{_SCRATCH}; 0 reads; 0 brings; 0 GETs R:b; 0 SETs R:x; 0 commits; 1 commits; "
                     "1 loses its connection, on which was: UNLINK")),
    Fault("scratch has no incarnation in its key", "scratch stays until its commit", PLAIN,
          client={"own_scratch": False}),
    Fault("a slot is used again before every base has what was in it", "deltas are there", PLAIN,
          client={"waits": False}),
    Fault("the ring is not renewed after an error in a push", "deltas are there",
          Bounds(silent="1", clocks=2, staleness=1, drops=1, folders="0"), client={"renews": False},
          story=_says("0 loses its connection, on which was: SET R:d; 0 syncs; 0 SETs R:d; 0 ticks")),
    Fault("a view serves for one clock too many", "reads are fresh", Bounds(folders=""), client={"extra": 1}),
    Fault("a view serves across a join", "reads are fresh",
          Bounds(workers=2, joined=1, starts=1, clocks=2, folders=""), client={"counts_members": False}),
    Fault("a commit does not look at the log's tag", "bases are exact",
          Bounds(clocks=1, staleness=1, cuts=1, drops=1, evictions=1),
          without("commit", "or redis.call('LINDEX', LOG, new - 1 - off - length) ~= ARGV[9] then", "then"),
          story=_says(_SCRATCH)),
    Fault("a commit does not look at the scratch's header", "bases are exact", replace(FOLDING, drops=1),
          without("commit", "if redis.call('GETRANGE', KEYS[5 + i], 0, #header - 1) ~= header then", "if false then"),
          story=_says(f"0 SETs R:d; 0 ticks; {_VIEW.format(1)}; 0 SETs R:d; 0 ticks")),
    Fault("a read goes on from a position that was trimmed", "masters are exact",
          Bounds(silent="1", bare=True, staleness=1, keep=1),
          without("read", "if known < off or known > off + length then", "if known > off + length then"),
          story=_says("1 reads; 1 reads; 1 brings; 1 GETs R:b; 0 SETs; 0 ticks; 0 ticks to 2 with -:; "
                      "0 reads; 0 brings; 0 GETs R:b")),
    Fault("no sync on a new connection", "bases are exact", Bounds(clocks=1, cuts=1), client={"greets": False}),
    Fault("rings have no incarnation in their names", "deltas are there",
          Bounds(clocks=1, starts=1, deaths=1, folders=""), client={"own_rings": False}),
    Fault("views outlive an epoch", "masters are exact", Bounds(clocks=1, rollbacks=1, window=3),
          client={"forgets": False}),
    Fault("bases are believed in after a lost connection", "deltas are there",
          Bounds(silent="1", staleness=1, rollbacks=1), client={"doubts": False},
          story=_says("0 SETs R:d; 0 ticks")),
    Fault("who finds all in the bases has no evidence", "masters are exact",
          Bounds(silent="1", clocks=1, staleness=1, rollbacks=1, window=3), client={"cites": False},
          story=_says("0 SETs R:d; from here; 0 ticks; 0 reads; 0 brings; 0 GETs R:b; 0 SETs R:x; 0 commits")),
    Fault("a sweep does not look at the tags", "deltas are there",
          replace(SWEEPING, staleness=1, evictions=1), client={"spares_named": False},
          story=_says("0 SETs R:d; 0 ticks")),
    Fault("a sweep takes members' rings", "deltas are there", SWEEPING, client={"spares_members": False}),
    Fault("a sweep reads the members before the list", "deltas are there",
          replace(SWEEPING, starts=1, evictions=1, silent="1"), client={"rings_first": False},
          story=_says("1 reads; 1 reads; worker 0 is evicted; 1 begins; 1 looks; 0 joins")),
    Fault("a ring is swept again without another look at the tags", "deltas are there",
          replace(SWEEPING, staleness=1, evictions=1, rollbacks=1, window=9, sweeps=2), client={"looks_again": False},
          story=_says("0 SETs R:d; 0 ticks; from here; worker 0 is evicted; 1 reads; 1 brings; 1 GETs R:b; 1 GETs R:d; "
                      "1 SETs R:x; 1 commits; 1 begins; 1 looks; 1 doubts")),
    Fault("a ring is not named again after a lost connection", "rings are named",
          replace(SWEEPING, drops=1, silent="", staleness=1), client={"names_again": False},
          story=_says("0 SETs R:d; 0 ticks; 1 reads; 1 brings; 1 GETs R:b; 1 GETs R:d")),
    Fault("a view at staleness 0 goes beyond the own clock", "reads are of their clock", Bounds(folders=""),
          client={"stops": False}),
    Fault("a base of a part of a clock is put in the place of another", "reads are of their clock", LATE,
          client={"one_at_a_time": False}, story=_says(_EARLY)),
    Fault("who may not read a base yet does not look at the one before", "reads are of their clock", LATE,
          client={"steps_back": False}, story=_says(_EARLY)),
    Fault("a reproducible view goes beyond the last complete clock", "reads are reproducible",
          replace(REPRODUCIBLE, folders=""), client={"stops": False}),
    Fault("a reproducible run sums in the order of the log", "masters are exact",
          replace(REPRODUCIBLE, folders=""), client={"sorts": False}),
    Fault("a slot is taken for what it was", "masters are exact", replace(FOLDING, slots=1, clocks=3, staleness=2),
          client={"looks": False}, story=_says("0 SETs R:d; 0 ticks; 1 reads; 1 brings")),
]  # fmt: skip
