"""How a process becomes a member: which id it takes, and the exchange that makes it one."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from .config import Settings
from .connection import Wire
from .errors import JobMismatch, SSPError, StateLost
from .keys import JobKeys, fit_name
from .lua import SCHEMA, Code, Refusal
from .scripts import Caller, ClockScripts, Joined, Synced

#: Why a holder is gone, or not yet seen to be, that did not leave by itself.
_LOST = ("-", "lost", "evicted")
#: (job, id) → nonce of what this process joins or has joined as: a pid that is mine does not make these free to claim.
_mine: dict[tuple[str, str], str] = {}
_mine_lock = threading.Lock()


@dataclass(frozen=True)
class Record:
    """What the job remembers of an id."""

    incarnation: int
    nonce: str
    host: str
    pid: int
    #: "-" while it is a member, else done, left, evicted or lost.
    why: str

    @classmethod
    def of(cls, text: bytes) -> Record:
        """Parse a value of the hash of ids."""
        incarnation, why, nonce, host, pid, _ = text.decode().split(" ")
        return cls(int(incarnation), nonce, host, int(pid), why)


def here() -> tuple[str, int]:
    """This process: host name, as one word, and pid."""
    return fit_name(socket.gethostname()), os.getpid()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def choose_id(job: str, records: Mapping[str, Record]) -> str:
    """The lowest id that this host lost, else the lowest that is free.

    A holder that was this host, with a pid that is mine or dead, holds it no longer. What was lost here comes before
    what is free: two containers that died together come back under their own ids, in whichever order they are started.
    For the same reason a pid that is mine cannot be told from that of a live process in another pid namespace with the
    host name of this one, as containers on the host's network have it.
    """
    host, pid = here()

    def free(worker: str) -> bool:
        record = records.get(worker)
        if (job, worker) in _mine:
            return False
        if record is None or record.why != "-":
            return True
        return record.host == host and (record.pid == pid or not _alive(record.pid))

    # Numbers only, as they are counted: an id with a name was given, and is not for the taking.
    numbers = sorted(int(worker) for worker in records if worker.isdecimal() and str(int(worker)) == worker)
    ours = (worker for worker in map(str, numbers) if records[worker].host == host and records[worker].why in _LOST)
    return next(worker for worker in itertools.chain(ours, map(str, itertools.count())) if free(worker))


def release(job: str, worker: str, nonce: str) -> None:
    """This process no longer holds the id, unless it has joined under it once more."""
    with _mine_lock:
        if _mine.get((job, worker)) == nonce:
            del _mine[job, worker]


def read_records(wire: Wire, keys: JobKeys) -> dict[str, Record]:
    """What the job remembers, by id."""
    reply = wire.call("HGETALL", keys.ids)
    return {reply[i].decode(): Record.of(reply[i + 1]) for i in range(0, len(reply), 2)}


class Joiner:
    """One attempt to join: repeatable over a new connection, with the same nonce and so the same answer."""

    def __init__(self, settings: Settings, keys: JobKeys, scripts: ClockScripts) -> None:
        self._settings = settings
        self._keys = keys
        self._scripts = scripts
        self._attempt: tuple[str, str, int] | None = None

    def __call__(self, wire: Wire) -> tuple[Caller, Joined]:
        """Join over ``wire``.

        Raises:
            JobMismatch: the job was created with other values, or the named run cannot begin.
            StateLost: part of the job's keys are gone.
        """
        while True:
            if self._attempt is None:
                self._attempt = self._choose(wire)
            worker, nonce, known = self._attempt
            host, pid = here()
            try:
                joined = self._ask(wire, worker, nonce, known, host, pid)
            except Refusal as refusal:
                self.abandon()
                if refusal.code not in (Code.HELD, Code.DEPARTED):
                    raise self._failure(refusal) from None
                # somebody took the id meanwhile, or this very attempt was here, and gone again, before its answer came
                self._attempt = None
                continue
            caller = Caller(joined.run, joined.standing.epoch, worker, joined.incarnation, nonce, host, pid)
            return caller, joined

    def abandon(self) -> None:
        """Let go of the id: the attempt has come to nothing."""
        if self._attempt is not None:
            release(self._settings.job, *self._attempt[:2])

    def _choose(self, wire: Wire) -> tuple[str, str, int]:
        records = read_records(wire, self._keys)
        if self._settings.run and self._settings.run != (wire.call("HGET", self._keys.config, "name") or b"").decode():
            records = {}  # the run begins with this join: nobody holds an id in it
        worker, nonce = self._settings.worker, secrets.token_hex(8)
        with _mine_lock:
            # held from here on, so that another thread that claims an id meanwhile takes the next one
            if worker is None:
                worker = choose_id(self._settings.job, records)
            _mine[self._settings.job, worker] = nonce
        record = records.get(worker)
        return worker, nonce, record.incarnation if record else 0

    def _ask(self, wire: Wire, worker: str, nonce: str, known: int, host: str, pid: int) -> Joined:
        settings = self._settings

        def milliseconds(seconds: float | None) -> str:
            return "" if seconds is None else str(round(seconds * 1000))

        return self._scripts.join(
            wire,
            SCHEMA,
            worker,
            nonce,
            known,
            host,
            pid,
            settings.run,
            "" if settings.workers is None else str(settings.workers),
            "" if settings.staleness is None else str(settings.staleness),
            milliseconds(settings.lease),
            milliseconds(settings.retain),
            "" if settings.reproducible is None else str(int(settings.reproducible)),
        )

    def _failure(self, refusal: Refusal) -> SSPError:
        job = self._settings.job
        if refusal.code is Code.SCHEMA:
            stored = refusal.words[0]
            return JobMismatch(
                f"job {job} was made by ssp-redis of schema {stored}, this is schema {SCHEMA}: use the same version",
                "schema",
                stored,
                str(SCHEMA),
            )
        if refusal.code is Code.MISMATCH:
            field, stored, given, *why = refusal.words
            if why == ["members"]:
                text = f"job {job}: run {given} cannot begin while run {stored} has members: stop or evict them first"
            elif why == ["used"]:
                text = f"job {job}: run {given} was used before run {stored}: choose another name"
            elif field == "worker":
                several = "s" * (stored != "1")
                text = f"job {job} is reproducible with {stored} worker{several}: there is no place for worker {given}"
            else:
                if field == "staleness":
                    stored, given = ("inf" if value == "-1" else value for value in (stored, given))
                if field == "lease":
                    stored, given = (f"{int(value) / 1000:g}" for value in (stored, given))
                text = (
                    f"job {job} was created with {field} {stored}, not {given}: leave {field} out to adopt it, "
                    f"name another run or job, or delete this one (ssp-redis delete {job})"
                )
            return JobMismatch(text, field, stored, given)
        return lost(job)


def observe(wire: Wire, scripts: ClockScripts, run: str, epoch: int) -> Synced:
    """Sync without being a member: whoever's lease has run out is removed."""
    return scripts.sync(wire, Caller(run, epoch, "", 0, "-", "-", 0), 0, -1, "")


def lost(job: str) -> StateLost:
    """The exception for a job whose keys are gone, or some of them."""
    return StateLost(
        f"job {job}: its state is gone from the server (deleted, flushed, evicted by a memory policy, or not on disk "
        "when the server restarted); nothing starts again from zero by itself: if part of it is left, delete that "
        f"(ssp-redis delete {job}), then join anew to begin afresh"
    )
