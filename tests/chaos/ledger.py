"""Counts over many schedules: how often each kind of fault happened, when, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .plan import KINDS, PHASES, REFUSALS
from .stage import Injected, Outcome, Stage

#: Which faults are meant to lead to an error: where there is one of them, it is not put down to another.
_CAUSES = {
    "Superseded": {"taken over", "taken over stopped"},
    "Evicted": {"evicted", "stopped too long"},
    "StateLost": {kind.name for kind in KINDS.values() if kind.group == "end"},
    "ServerRefused": REFUSALS,
    "SSPError": REFUSALS,
}
#: Seconds after a fault in which what a worker is shown is put down to it.
_AFTER = 3.0
_PHASES = (*PHASES, "computing")


def came_of(stage: Stage, fault: Injected) -> str:
    """What the program of the worker it met (of any worker, for a fault of the server) was shown."""
    end = (fault.end or fault.begin) + _AFTER
    victims = [life for life in stage.lives if fault.affects is None or life.worker == fault.worker]
    shown = {
        str(event.details[0])
        for life in victims
        for event in life.events
        if fault.begin <= event.time <= end and event.what in ("error", "end")
    }
    happened = {other.kind for other in stage.outcome.injected}
    shown = {
        name
        for name in shown - {"done"}
        if fault.kind in _CAUSES.get(name, ()) or not happened & _CAUSES.get(name, set())
    }
    if fault.kind == "killed":
        successor = any(
            life.worker == fault.worker and life.number > fault.life and life.last("joined") for life in stage.lives
        )
        return "restarted, and resumed" if successor else "not restarted: the job was lost"
    if "not a member" in fault.note:
        return fault.note
    return ", ".join(sorted(shown)) or "unnoticed"


def record(stage: Stage) -> dict[str, Any]:
    """What one schedule came to, as it is kept."""
    outcome: Outcome = stage.outcome
    return {
        "seed": outcome.schedule.seed,
        "seconds": round(outcome.seconds, 2),
        "staleness": str(outcome.schedule.staleness),
        "violations": outcome.violations,
        "faults": [[fault.kind, fault.phase, came_of(stage, fault)] for fault in outcome.injected],
        "missed": [[fault.kind, fault.phase] for fault in stage.missed()],
        "ends": dict(outcome.errors),
        "numbers": {name: round(value, 3) for name, value in outcome.numbers.items()},
    }


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


@dataclass
class Ledger:
    """What happened, over many schedules."""

    schedules: int = 0
    seconds: float = 0.0
    #: Seed and first violation of those that failed.
    failed: dict[int, str] = field(default_factory=dict)
    kinds: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in KINDS})
    phases: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in KINDS})
    missed: Counter[str] = field(default_factory=Counter)
    fewest: int = len(KINDS)
    ends: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]]) -> Ledger:
        """The counts of what was kept."""
        ledger = cls()
        for one in records:
            ledger.add(one)
        return ledger

    def add(self, one: dict[str, Any]) -> None:
        """Count one schedule."""
        self.schedules += 1
        self.seconds += one["seconds"]
        if one["violations"]:
            self.failed[one["seed"]] = one["violations"][0]
        self.ends.update(one["ends"])
        self.fewest = min(self.fewest, len({kind for kind, _, _ in one["faults"]}))
        for kind, phase, outcome in one["faults"]:
            self.kinds[kind][outcome] += 1
            self.phases[kind][phase] += 1
        self.missed.update(f"{kind}, {phase}" for kind, phase in one["missed"])
        for name, value in one["numbers"].items():
            if name.startswith(("largest", "latest", "rings left by")):
                if name == "largest lead seen":
                    name = f"largest lead at staleness {one['staleness']}"
                self.largest[name] = max(self.largest.get(name, 0), value)
            else:
                self.totals[name] += int(value)

    @property
    def faults(self) -> int:
        """How many happened."""
        return sum(sum(counts.values()) for counts in self.kinds.values())

    def thin(self, least: int) -> list[str]:
        """The pairs of a kind and a phase that came up less often."""
        return [
            f"{kind}, {phase}: {self.phases[kind][phase]}"
            for kind in KINDS
            for phase in PHASES
            if self.phases[kind][phase] < least
        ]

    def summary(self) -> str:
        """One line."""
        failed = f" in seeds {sorted(self.failed)}" if self.failed else ""
        return (
            f"{self.schedules} schedules, {self.faults} faults, {self.seconds:.0f} s, {len(self.failed)} with "
            f"violations{failed}"
        )

    def table(self) -> str:
        """For people: what happened in all, one row for each kind, and when each kind met the workers."""
        cells = [self.totals[name] for name in ("deltas", "deltas whose end was open", "reads")]
        lines = [
            _row("schedules", "with violations", "faults", "time", "lives of workers", "deltas", "under way", "reads"),
            "|" + "---:|" * 8,
            _row(
                *(self.schedules, len(self.failed), self.faults, f"{self.seconds:.0f} s"),
                *(sum(self.ends.values()), *cells),
            ),
            "",
            _row("fault", "what", "times", "what the program was shown"),
            "|---|---|---:|---|",
        ]
        for name, counts in self.kinds.items():
            shown = "; ".join(f"{what} {count}" for what, count in counts.most_common())
            lines.append(_row(name, KINDS[name].what, sum(counts.values()), shown))
        lines += ["", _row("fault met a worker", *_PHASES), "|---|" + "---:|" * len(_PHASES)]
        lines += [_row(name, *(row[phase] for phase in _PHASES)) for name, row in self.phases.items()]
        lines += [
            "",
            "How the lives of the workers ended: " + ", ".join(f"{what} {n}" for what, n in self.ends.most_common()),
            "Numbers: " + ", ".join(f"{name} {value}" for name, value in sorted(self.totals.items())),
            "Largest: " + ", ".join(f"{name} {value}" for name, value in sorted(self.largest.items())),
            f"Fewest kinds in a schedule: {self.fewest}",
            "Fewer than 20: " + ("; ".join(self.thin(20)) or "none"),
            "Planned, and their moment did not come: "
            + (", ".join(f"{what} {count}" for what, count in self.missed.most_common(60)) or "none"),
            *(f"Seed {seed}: {text}" for seed, text in sorted(self.failed.items())),
        ]
        return "\n".join(lines)
