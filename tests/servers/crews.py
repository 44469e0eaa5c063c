"""Workers of a job in processes of their own, which count; and whether what they counted is what the tables hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remote import Remote, eventually

from ssp_redis import Job, Loss

#: Deltas in slots, in tags, and of some rows.
TABLES = ("large", "small", "sparse")
_RUN = """
worker = ssp_redis.join(url, job=job, worker=i, **settings)
tables = {
    name: worker.sparse_table(name, (1000, 4), np.float64)
    if name == "sparse"
    else worker.table(name, np.zeros({"large": 20_000, "small": 3}[name]))
    for name in names
}
added = 0
for clock in worker.clocks(10**9):
    added += 1
    for name, table in tables.items():
        if name == "sparse":
            table.inc(np.ones((2, 4)), rows=[1, 500])
        else:
            table.inc(np.ones(table.shape))
        if clock % 3 == 0:
            table.get([1, 500]) if name == "sparse" else table.get()
worker.leave()  # commits what a stop has left open, and pushes again what was saved: that is a clock, too
(worker.clock, added, worker.losses)
"""


class Crew:
    """``count`` workers that add 1 everywhere at each clock, until the job is stopped."""

    def __init__(
        self,
        remote: Callable[..., Remote],
        url: str,
        job: str,
        count: int = 2,
        tables: Sequence[str] = TABLES,
        **settings: Any,
    ) -> None:
        self.job, self.tables, self.seen = job, tables, Job(url, job, timeout=30)
        self.children = [remote() for _ in range(count)]
        settings = {"workers": count, "staleness": 1, "lease": 20.0, "timeout": 60.0} | settings
        for i, child in enumerate(self.children):
            child.start(_RUN, url=url, job=job, i=i, names=tuple(tables), settings=settings)

    def clocks(self) -> list[int]:
        """The clock of each worker, as the server has it; [] before there is a job."""
        if not self.seen.exists():
            return []
        return [member.clock for member in self.seen.status().members]

    def advance(self, clocks: int = 20, seconds: float = 60.0) -> None:
        """Wait until each worker has gone so many clocks further."""
        eventually(lambda: len(self.clocks()) == len(self.children), "all have joined", seconds)
        begun = min(self.clocks())
        eventually(lambda: min(self.clocks(), default=0) >= begun + clocks, f"{clocks} more clocks", seconds)

    def check(self) -> tuple[list[int], list[Loss]]:
        """Stop it: each table must hold every clock of every worker once, but for those that are named as lost.

        Of several tables, one may have been given what was lost to another.
        """
        self.seen.stop()
        found = [child.result(60) for child in self.children]
        clocks, added = [clock for clock, _, _ in found], sum(count for _, count, _ in found)
        # of others a worker names what it knows; here all are there to speak for themselves
        losses = [loss for i, (_, _, named) in enumerate(found) for loss in named if loss.worker == str(i)]
        gone = sum(loss.last - loss.first + 1 for loss in losses if not loss.repushed)
        for name in self.tables:
            values = self.seen.table(name).get()
            if name == "sparse":
                values = values[[1, 500]]
            low, high = values.min(), values.max()
            assert low == high, (name, low, high)
            least = added - gone
            most = least if len(self.tables) == 1 else added
            assert least <= low <= most, (name, low, added, losses)
        self.seen.delete(force=True)
        self.seen.close()
        return clocks, losses
