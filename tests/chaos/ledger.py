"""Counts over many schedules: how often each kind of fault happened, when, and what came of it."""

from __future__ import annotations

from collections import Counter
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
_AFTER = 5.0


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


@dataclass
class Ledger:
    """What happened, over many schedules."""

    schedules: int = 0
    seconds: float = 0.0
    failed: list[int] = field(default_factory=list)
    violations: int = 0
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    phases: dict[str, Counter[str]] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)

    def add(self, stage: Stage) -> None:
        """Count one schedule."""
        outcome: Outcome = stage.outcome
        self.schedules += 1
        self.seconds += outcome.seconds
        self.violations += len(outcome.violations)
        if outcome.violations:
            self.failed.append(outcome.schedule.seed)
        self.ends += outcome.errors
        for fault in outcome.injected:
            self.kinds.setdefault(fault.kind, Counter())[came_of(stage, fault)] += 1
            self.phases.setdefault(fault.kind, Counter())[fault.phase] += 1
        for name, value in outcome.numbers.items():
            if name.startswith(("largest", "latest", "rings left by")):
                if name == "largest lead seen":
                    name = f"largest lead at staleness {outcome.schedule.staleness}"
                self.largest[name] = max(self.largest.get(name, 0), round(value, 3))
            else:
                self.totals[name] += int(value)

    def json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "schedules": self.schedules,
            "seconds": round(self.seconds, 1),
            "faults": sum(sum(counts.values()) for counts in self.kinds.values()),
            "violations": self.violations,
            "failed": self.failed,
            "kinds": {
                name: {
                    "injected": sum(self.kinds[name].values()),
                    "outcomes": dict(self.kinds[name].most_common()),
                    "phases": dict(self.phases[name]),
                }
                for name in KINDS
                if name in self.kinds
            },
            "ends": dict(self.ends.most_common()),
            "totals": dict(self.totals),
            "largest": self.largest,
        }

    def table(self) -> str:
        """For people: one row for each kind."""
        lines = ["| fault | what | times | what the program was shown |", "|---|---|---:|---|"]
        for name, counts in ((kind, self.kinds.get(kind, Counter())) for kind in KINDS):
            shown = "; ".join(f"{what} {count}" for what, count in counts.most_common())
            lines.append(f"| {name} | {KINDS[name].what} | {sum(counts.values())} | {shown} |")
        phases = (*PHASES, "computing")
        lines += ["", "| fault met a worker | " + " | ".join(phases) + " |", "|---|" + "---:|" * len(phases)]
        for name in KINDS:
            row = self.phases.get(name, Counter())
            lines.append(f"| {name} | " + " | ".join(str(row[phase]) for phase in phases) + " |")
        return "\n".join(lines)
