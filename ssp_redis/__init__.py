"""Clock coordination on Redis for stale synchronous parallel work, with a shared parameter store.

with ssp_redis.join("redis://localhost:6379", job="demo", worker=0, workers=4, staleness=10) as worker:
    w = worker.table("w", np.zeros((1000, 16), np.float32))
    for clock in worker.clocks(500):
        x = w.get()
        w.inc(-0.1 * gradient(x))
"""

from __future__ import annotations

from .errors import (
    Blocker,
    Evicted,
    Fenced,
    JobMismatch,
    JobStopped,
    Loss,
    NonFinite,
    RolledBack,
    ServerRefused,
    ServerUnavailable,
    SSPError,
    StateLost,
    Superseded,
    TableMismatch,
    UsageError,
    WaitTimeout,
)
from .job import Job, JobSparseTable, JobTable, list_jobs
from .replica import Replica
from .shares import Shares
from .sparse import SparseTable
from .status import JobStatus
from .table import Table
from .worker import Worker, join

__version__ = "0.1.0"

__all__ = [
    "Blocker",
    "Evicted",
    "Fenced",
    "Job",
    "JobMismatch",
    "JobSparseTable",
    "JobStatus",
    "JobStopped",
    "JobTable",
    "Loss",
    "NonFinite",
    "Replica",
    "RolledBack",
    "SSPError",
    "ServerRefused",
    "ServerUnavailable",
    "Shares",
    "SparseTable",
    "StateLost",
    "Superseded",
    "Table",
    "TableMismatch",
    "UsageError",
    "WaitTimeout",
    "Worker",
    "__version__",
    "join",
    "list_jobs",
]
