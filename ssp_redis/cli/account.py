"""What a worker did and where its time went; and the same added up over several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

_TAKEN = (
    "wait_seconds",
    "push_seconds",
    "pull_seconds",
    "bytes_in",
    "bytes_out",
    "lost_clocks",
)


@dataclass
class Account:
    """One worker's part in a run, as it goes over the channel from ``worker`` to ``launch``."""

    worker: str
    #: Clock at which it entered, and the one it reached.
    first: int = 0
    clock: int = 0
    #: time.monotonic() when it was admitted and when it was done: one clock for all processes of a machine.
    admitted: float = 0.0
    done: float = 0.0
    #: How it ended: done, nothing (was done before), stopped, left, evicted, failed, died; running until then.
    how: str = "running"
    #: Clocks ahead of the slowest, as far as it knows.
    lead: int = 0
    staleness: float = 0.0
    #: Of the last clocks, smoothed.
    loss: float | None = None
    wait_seconds: float = 0.0
    push_seconds: float = 0.0
    pull_seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    #: Clocks that the server acknowledged and then forgot, for good.
    lost_clocks: int = 0

    @property
    def seconds(self) -> float:
        """From admission to the end, or until now."""
        return max(0.0, self.done - self.admitted)

    @property
    def compute_seconds(self) -> float:
        """What was neither waiting nor moving parameters."""
        return max(0.0, self.seconds - self.wait_seconds - self.push_seconds - self.pull_seconds)

    @property
    def ticks(self) -> int:
        """Clocks completed in this run of the program."""
        return self.clock - self.first

    def to_json(self) -> dict[str, Any]:
        """For the channel."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Account:
        """From the channel."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def take(self, stats: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Take over what the worker's own statistics say, less what was ``before`` it was admitted."""
        for name in _TAKEN:
            setattr(self, name, stats[name] - before.get(name, 0))
        self.clock, self.lead, self.staleness = stats["clock"], stats["lead"], stats["staleness"]


@dataclass(frozen=True)
class Total:
    """Several workers' accounts in one."""

    accounts: Sequence[Account]

    def sum(self, name: str) -> float:
        """One field, added up."""
        return float(sum(getattr(account, name) for account in self.accounts))

    @property
    def seconds(self) -> float:
        """From the moment the first worker was admitted to the moment the last one was done: no start-up in it."""
        ran = [account for account in self.accounts if account.admitted]
        if not ran:
            return 0.0
        return max(0.0, max(account.done for account in ran) - min(account.admitted for account in ran))

    @property
    def ticks(self) -> int:
        """Clocks of all workers."""
        return sum(account.ticks for account in self.accounts)

    @property
    def rate(self) -> float:
        """Clocks a second, of all workers together."""
        return self.ticks / self.seconds if self.seconds else 0.0
