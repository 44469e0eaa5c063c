"""Real workers in threads, of which one at a time may send: a seed says which, and what befalls it there.

Where ``tests.explore.store`` walks every interleaving of a small model of the client, this plays single ones of the
client itself: of dense, tiny and sparse tables while they are made, pushed, folded, read, swept and left. Blocks, rings
and limits are made small, so that a few clocks meet them all. Connections break before, in and after exchanges, what
was sent arrives late, workers die, are evicted, superseded and come back.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import redis

import ssp_redis
from ssp_redis import Fenced, Job, SSPError, Worker
from ssp_redis.connection.wire import Wire
from ssp_redis.keys import StoreKeys

#: Lives per id, clocks, and elements of a table that tell all of them apart.
LIVES, CLOCKS = 4, 8
#: What is made small: blocks and shares of 256 bytes, rings of 3 slots, deltas of sparse tables that are heavy soon.
SMALL = {
    "ssp_redis.store.layout.BLOCK": 256,
    "ssp_redis.store.layout.SHARE": 512,
    "ssp_redis.store.layout.SMALL": 128,
    "ssp_redis.store.push.SMALL": 128,
    "ssp_redis.store.layout._RING": 1024,
    "ssp_redis.store.sparse.layout._SLOTS": 3,
    "ssp_redis.store.sparse.layout._PIECE": 96,
    "ssp_redis.store.sparse.push.SMALL": 128,
    "ssp_redis.store.sparse.push.LARGE": 64,
    "ssp_redis.store.sparse.folding._HEAVY": 128,
    "ssp_redis.store.sparse.exchange._QUESTION": 8,
    "ssp_redis.store.store._DOUBT": 0.05,
}
#: In every third play tables are of one small block, and two workers are a crowd: one sums for all at staleness 0.
CROWD = {
    "ssp_redis.store.layout.BLOCK": 1024,
    "ssp_redis.store.layout.SHARE": 1024,
    "ssp_redis.store.layout.SMALL": 1024,
    "ssp_redis.store.folding._CROWD": 2,
}


class Died(BaseException):
    """The process is no more."""


@dataclass
class Life:
    """One worker, in a thread of its own."""

    worker: int
    number: int
    thread: threading.Thread | None = None
    #: It may send now; it waits to be let.
    may: threading.Event = field(default_factory=threading.Event)
    waits: threading.Event = field(default_factory=threading.Event)
    fate: str = ""
    #: Does it only look whether something has come?
    looks: bool = False
    over: bool = False
    error: BaseException | None = None
    #: Clocks whose deltas it has begun to add; those whose tick has returned.
    begun: set[int] = field(default_factory=set)
    ticked: set[int] = field(default_factory=set)
    done: bool = False

    def __str__(self) -> str:
        return f"worker {self.worker}, life {self.number}"


class Broken(AssertionError):
    """A rule was broken."""


class Play:
    """One seed's interleaving, on a server of which nobody else uses the job."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed, self.job = url, seed, f"live{seed}"
        self.rng = rng = random.Random(f"live {seed}")
        self.workers = rng.choice((2, 2, 3))
        self.staleness = rng.choice((0, 1, 3, None))
        self.crowd = seed % 3 == 0
        if self.crowd:
            self.staleness = 0
        self.trouble = rng.choice((0.0, 0.01, 0.03))
        self.size = self.workers * LIVES * (CLOCKS + 1)
        self.lives: list[Life] = []
        #: What was sent over a connection that broke: it may arrive once; and what has.
        self.late: list[bytes] = []
        self.arrived: list[bytes] = []
        self.log: list[str] = []
        self.steps = 0
        self._by_thread: dict[int, Life] = {}
        self._send, self._parts, self._ready = Wire.send, Wire.send_parts, Wire.ready

    def run(self) -> None:
        """Play it to the end.

        Raises:
            Broken: with all that happened.
        """
        with small(self.crowd), self._hooked():
            try:
                for worker in range(self.workers):
                    self._begin(worker)
                self._conduct()
                for life in self.lives:
                    if life.error is not None and not isinstance(life.error, (Died, Fenced)):
                        raise Broken(f"{life} ended with {type(life.error).__name__}: {life.error}") from life.error
                self._sums()
            except Broken as broken:
                story = "\n".join(self.log[-200:])
                raise Broken(
                    f"{broken}\nseed {self.seed}: {self.workers} workers, staleness {self.staleness}\n{story}"
                ) from (broken.__cause__)
            finally:
                self._end()

    # -- one at a time -----------------------------------------------------------------------------------------------

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        def send(wire: Wire, data: Any) -> None:
            self._sends(wire, bytes(data), lambda: self._send(wire, data))

        def send_parts(wire: Wire, parts: Any) -> None:
            parts = list(parts)
            self._sends(wire, b"".join(bytes(part) for part in parts), lambda: self._parts(wire, parts))

        def ready(wire: Wire, timeout: float) -> bool:
            life = self._by_thread.get(threading.get_ident())
            if life is None or self._ready(wire, 0.0) or timeout <= 0:
                return self._ready(wire, timeout if life is None else 0.0)
            self._pause(life, True)
            return self._ready(wire, 0.0)

        with ExitStack() as stack:
            for name, function in (("send", send), ("send_parts", send_parts), ("ready", ready)):
                stack.enter_context(mock.patch.object(Wire, name, function))
            stack.enter_context(mock.patch("ssp_redis.heartbeat.Heartbeat.start", lambda beat: None))
            hasty = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None)
            stack.enter_context(mock.patch("ssp_redis.connection.backoff.time", hasty))
            yield

    def _sends(self, wire: Wire, data: bytes, send: Callable[[], None]) -> None:
        life = self._by_thread.get(threading.get_ident())
        if life is None:
            send()
            return
        fate = self._pause(life, False, data)
        if fate in ("lost", "late"):
            if fate == "late" and b"SUBSCRIBE" not in data:
                self.late.append(data)
            wire.close()
            raise ConnectionError("lost")
        send()
        if fate == "reply lost":
            self._ready(wire, 1.0)
            wire.close()

    def _pause(self, life: Life, looks: bool, data: bytes = b"") -> str:
        life.looks = looks
        self._data = data
        life.waits.set()
        life.may.wait()
        life.may.clear()
        if life.fate == "dies":
            raise Died
        return life.fate

    def _lives(self, worker: int) -> int:
        return sum(life.worker == worker for life in self.lives)

    def _begin(self, worker: int) -> None:
        number = self._lives(worker)
        life = Life(worker, number)
        self.lives.append(life)

        def live() -> None:
            self._by_thread[threading.get_ident()] = life
            try:
                self._program(life)
            except BaseException as error:
                life.error = error
            life.over = True
            life.waits.set()

        life.thread = threading.Thread(target=live, daemon=True)
        life.thread.start()
        self._await(life)

    def _await(self, life: Life) -> None:
        if not life.waits.wait(20):
            raise Broken(f"{life} does not come to its next command")

    def _let(self, life: Life, fate: str) -> None:
        life.fate = fate
        life.waits.clear()
        life.may.set()
        self._await(life)

    def _conduct(self) -> None:
        rng = self.rng
        idle = time.monotonic()
        while alive := [life for life in self.lives if not life.over]:
            self.steps += 1
            busy = [life for life in alive if not life.looks]
            if busy:
                idle = time.monotonic()
            elif time.monotonic() > idle + 10:
                raise Broken(f"all wait: {', '.join(map(str, alive))}")
            # who only looks whether something has come is let look from time to time
            life = rng.choice(busy if busy and rng.random() < 0.8 else alive)
            fate = ""
            if not life.looks and rng.random() < self.trouble:
                fate = rng.choice(("lost", "reply lost", "late", "dies", "evicted", "taken over", "flushed"))
            if fate:
                self.log.append(f"{self.steps}: {life}: {fate}")
            if self.late and rng.random() < 0.05:
                self._arrives(self.late.pop(rng.randrange(len(self.late))))
            if fate == "evicted":
                with contextlib.suppress(SSPError):
                    Job(self.url, self.job).evict(life.worker)
            elif fate == "flushed":
                with redis.Redis.from_url(self.url) as client:
                    client.script_flush()
            elif fate == "taken over" and self._lives(life.worker) < LIVES:
                self._begin(life.worker)
            self._let(life, fate)
            if life.over:
                self.log.append(f"{self.steps}: {life} ends: {life.error!r}")
                following = [one for one in self.lives if one.worker == life.worker and one.number > life.number]
                if not life.done and not following and self._lives(life.worker) < LIVES:
                    self._begin(life.worker)
                elif not life.done and not following:
                    # nobody comes in its place any more: the others must not wait for it
                    with contextlib.suppress(SSPError):
                        Job(self.url, self.job).evict(life.worker)
            if self.steps > 200_000:
                raise Broken("it does not end")

    def _arrives(self, data: bytes) -> None:
        """What was sent over a connection that is lost."""
        where = self.url.removeprefix("unix://")
        with socket.socket(socket.AF_UNIX) as late:
            late.settimeout(5)
            late.connect(where)
            late.sendall(data + b"*1\r\n$4\r\nPING\r\n")
            got = b""
            while b"+PONG\r\n" not in got:
                if not (more := late.recv(1 << 16)):
                    break
                got += more
        self.arrived.append(data)
        self.log.append(f"{self.steps}: late: {data[:80]!r}")

    def _end(self) -> None:
        for life in self.lives:
            while not life.over:
                life.fate = "dies"
                life.waits.clear()
                life.may.set()
                if not life.waits.wait(5):
                    break
        with contextlib.suppress(SSPError):
            Job(self.url, self.job).delete(force=True)

    # -- what a worker does ------------------------------------------------------------------------------------------

    def _mark(self, life: Life, clock: int) -> int:
        return int(np.ravel_multi_index((life.worker, life.number, clock), (self.workers, LIVES, CLOCKS + 1)))

    def _program(self, life: Life) -> None:
        rng = random.Random(f"live {self.seed} {life.worker} {life.number}")
        worker = ssp_redis.join(
            self.url, job=self.job, worker=life.worker, workers=self.workers, staleness=self.staleness, lease=3600.0
        )
        tables = self._tables(worker)
        worker.wait()
        while worker.clock < CLOCKS:
            clock = worker.clock
            self._adds(life, tables, clock)
            must = self._committed()
            worker.advance()
            life.ticked.add(clock)
            worker.wait()
            for name, table in tables.items():
                if rng.random() < 0.4:
                    self._reads(life, name, table, must, rng)
        if rng.random() < 0.3:
            worker.detach()
            Job(self.url, self.job).evict(life.worker)
        else:
            if rng.random() < 0.5 and worker.clock == CLOCKS:
                self._adds(life, tables, CLOCKS)
            worker.leave("done")
            life.ticked |= {CLOCKS} & life.begun
        life.done = True

    def _tables(self, worker: Worker) -> dict[str, Any]:
        return {
            "tiny": worker.table("tiny", np.zeros(4, np.int64)),
            "small": worker.table("small", np.zeros(self.size, np.int8).astype(np.float32)),
            "rows": worker.sparse_table("rows", (self.size + 1, 2), np.int64),
        }

    def _adds(self, life: Life, tables: dict[str, Any], clock: int) -> None:
        mark = self._mark(life, clock)
        rng = random.Random(f"live {self.seed} {mark}")
        life.begun.add(clock)
        if rng.random() < 0.8:
            delta = np.zeros(self.size, np.float32)
            delta[mark] = 1
            tables["small"].inc(delta)
        if rng.random() < 0.8:
            tables["rows"].inc(np.array([[1, 1], [1, 0]]), rows=[mark, self.size])
        if rng.random() < 0.5:
            tables["tiny"].inc(np.array([1, 0, 0, mark]))

    def _touches(self, name: str, mark: int) -> bool:
        rng = random.Random(f"live {self.seed} {mark}")
        small, rows, tiny = rng.random() < 0.8, rng.random() < 0.8, rng.random() < 0.5
        return {"small": small, "rows": rows, "tiny": tiny}[name]

    def _committed(self) -> set[int]:
        """The marks of which it is certain that they are in the log."""
        return {self._mark(life, clock) for life in self.lives for clock in life.ticked}

    def _begun(self) -> set[int]:
        return {self._mark(life, clock) for life in self.lives for clock in life.begun}

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _reads(self, life: Life, name: str, table: Any, must: set[int], rng: random.Random) -> None:
        wanted = list(range(self.size))
        if name == "rows":
            wanted = sorted(rng.sample(wanted, rng.randint(1, self.size)))
            value = table.get(wanted)
        else:
            value = table.get()
        own = {self._mark(life, clock) for clock in life.begun}
        if name == "tiny":
            return
        if self.staleness is not None:
            # it may be as old as the bound allows: only its own are certain
            must = set()
        self._compare(f"{life}, at clock {max(life.ticked) + 1}", name, value, wanted, must | own, self._begun())

    def _compare(self, who: str, name: str, value: Any, wanted: list[int], least: set[int], most: set[int]) -> None:
        for place, mark in enumerate(wanted):
            count = value[place] if name == "small" else value[place][0]
            if name == "rows" and value[place][0] != value[place][1]:
                raise Broken(f"{who}: row {mark} of {name} is {value[place]}")
            at_least = int(mark in least and self._touches(name, mark))
            at_most = int(mark in most and self._touches(name, mark))
            if not at_least <= count <= at_most:
                raise Broken(f"{who}: mark {mark} is in {name} {count} times, not {at_least} to {at_most}")

    def _sums(self) -> None:
        least, most = self._committed(), self._begun()
        job = Job(self.url, self.job)
        for worker in list(job.status().members):
            job.evict(worker.worker)
        if len(job.tables()) < 3:
            return  # nobody lived so long
        every = list(range(self.size))
        values = {name: job.table(name).get() for name in ("tiny", "small", "rows")}
        for name in ("small", "rows"):
            self._compare("at the end", name, values[name], every, least, most)
        there = [mark for mark in every if values["small"][mark] or values["rows"][mark][0]]
        for mark in there:
            for name, has in (("small", bool(values["small"][mark])), ("rows", bool(values["rows"][mark][0]))):
                if has != self._touches(name, mark):
                    raise Broken(f"at the end: mark {mark} is in one table and not in {name}")
        if values["rows"][self.size][0] != sum(values["rows"][mark][0] for mark in every):
            raise Broken(f"at the end: the row of all has {values['rows'][self.size]}")
        silent = [mark for mark in sorted(most) if not self._touches("small", mark) and not self._touches("rows", mark)]
        low = [m for m in [*there, *[m for m in silent if m in least]] if self._touches("tiny", m)]
        high = len(low) + sum(m not in least and self._touches("tiny", m) for m in silent)
        if not len(low) <= values["tiny"][0] <= high:
            raise Broken(f"at the end: tiny has {values['tiny'][0]} deltas, not {len(low)} to {high}")
        self._garbage()

    def _garbage(self) -> None:
        """After the next one has come, read all and left, nothing is left but bases."""
        with redis.Redis.from_url(self.url) as client:
            run = client.hget(f"ssp:{{{self.job}}}:config", "run").decode()
            keys = StoreKeys(f"ssp:{{{self.job}}}:", run)
            with ssp_redis.join(self.url, job=self.job, worker="janitor", timeout=10) as janitor:
                for name, table in self._tables(janitor).items():
                    table.get(range(self.size)) if name == "rows" else table.get()
            left = [key.decode() for key in client.scan_iter(match=f"{keys.prefix}[dx]:*", count=1000)]
            # what comes after the sweep of its ring stays where the sweeper has died since
            if left := [key for key in left if not any(key.encode() in data for data in self.arrived)]:
                raise Broken(f"at the end: {len(left)} keys are left: {sorted(left)[:5]}")
            Job(self.url, self.job).delete(force=True)
            if left := list(client.scan_iter(match=f"ssp:{{{self.job}}}:*", count=1000)):
                raise Broken(f"left after delete: {left[:5]}")


@contextmanager
def small(crowd: bool) -> Iterator[None]:
    """Blocks, rings and limits so small that a few clocks meet them all."""
    with ExitStack() as stack:
        for name, value in {**SMALL, **(CROWD if crowd else {})}.items():
            stack.enter_context(mock.patch(name, value))
        yield


def main(arguments: list[str]) -> int:
    import argparse

    from ssp_redis.server import EmbeddedServer

    parser = argparse.ArgumentParser(prog="python -m tests.explore --live", description=__doc__)
    parser.add_argument("--server", help="binary of the server (default: as ssp-redis launch)")
    parser.add_argument("--seeds", default="1-100", help="17 or 1-100 (default 1-100)")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    steps, begun, failed = 0, time.monotonic(), []
    with EmbeddedServer(options.server) as server:
        for seed in range(int(first), int(last or first) + 1):
            play = Play(server.url, seed)
            try:
                play.run()
            except Broken as broken:
                print(broken, file=sys.stderr)
                failed.append(seed)
            steps += play.steps
    print(f"{steps:,} steps, {time.monotonic() - begun:.1f} s; failed: {failed or 'none'}")
    return 1 if failed else 0
