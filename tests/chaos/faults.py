"""What can be done to a worker, its connections and the server."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from proxy import COMMAND, CUT, HEARTBEAT, LOSE_REPLY, PASS, SUBSCRIBER, Fate, Pair
from remote import eventually

from ssp_redis import Job, SSPError

from .plan import KINDS, Planned
from .stage import JOB, Injected, Life, Stage, log_parts


def inject(stage: Stage, planned: Planned, life: Life, phase: str, pair: Pair | None, chunk: bytes) -> Fate:
    """Do it; returns what becomes of the chunk that the worker was just sending."""
    group = KINDS[planned.kind].group
    if group == "wire":
        return _wire(stage, planned, life, phase, pair, chunk)
    if group == "process":
        return _process(stage, planned, life, phase, chunk)
    # while the worker's command is held, so that the fault meets it in this phase
    begun = False

    def begin() -> None:
        nonlocal begun
        begun = True
        stage.tell()

    stage.background(lambda: _server(stage, planned, life, phase, begin))
    stage.until(lambda: begun, 2.0)
    return PASS


# -- connections


def _wire(stage: Stage, planned: Planned, life: Life, phase: str, pair: Pair | None, chunk: bytes) -> Fate:
    kind, amount = planned.kind, planned.amount
    where, _, how = kind.partition(" ")
    role = {"waiting": SUBSCRIBER, "heartbeat": HEARTBEAT}.get(where)
    if role:
        injected = stage.note(kind, life, phase, life.worker)
        for target in life.has(role):
            _afflict(stage, target, how, amount, injected)
        return PASS
    if pair is None:
        # not sending anything: the connection that is there
        pair = next(iter(life.has(COMMAND)), None)
    injected = stage.note(kind, life, phase, life.worker, f"{len(chunk)} bytes" if chunk else "")
    if pair is None:
        injected.end = time.monotonic()  # it has been closed this very moment
        return PASS
    if kind == "commands half-open":
        pair.muted = True
    elif kind == "commands frozen":
        _afflict(stage, pair, "frozen", amount, injected)
        return PASS
    elif kind == "command torn":
        pair.cut_after(up=min(len(chunk) - 1, round(amount * len(chunk))))
    elif kind == "reply torn":
        pair.cut_after(down=round(amount * 30))
    injected.end = time.monotonic()
    if kind == "command late":
        injected.end += 0.6
        return Fate(late=0.6 * amount)
    if kind == "command delayed":
        injected.end += 0.5
        return Fate(delay=0.5 * amount)
    if kind == "command repeated":
        seen = len(life.events)
        call = b"\r\nEVALSHA\r\n" in chunk[:30]
        if call:
            stage.late.append(chunk)
        injected.end += 0.6

        def again() -> None:
            stage.until(lambda: len(life.events) > seen + 5 or life.ended, 2.0 if call else 0.6 * amount)
            with contextlib.suppress(OSError):
                answer = life.proxy.replay(chunk)
                stage.say(f"said again: {answer[:80]!r}")

        stage.background(again)
        # what is not a script's call is repeated only to a client that has lost its connection
        return PASS if call else LOSE_REPLY
    return {"command lost": CUT, "reply lost": LOSE_REPLY}.get(kind, PASS)


def _afflict(stage: Stage, pair: Pair, how: str, amount: float, injected: Injected) -> None:
    if how == "cut":
        pair.close()
    elif how == "half-open":
        pair.muted = True
    else:
        pair.hold()

        def thaw() -> None:
            time.sleep(0.15 + 1.15 * amount)  # how long it lasts
            pair.release()
            injected.end = time.monotonic()

        stage.background(thaw)
        return
    injected.end = time.monotonic()


# -- processes


def _process(stage: Stage, planned: Planned, life: Life, phase: str, chunk: bytes) -> Fate:
    kind, amount, lease = planned.kind, planned.amount, stage.schedule.lease
    injected = stage.note(kind, life, phase, life.worker)

    def over() -> None:
        injected.end = time.monotonic()

    if kind == "killed":
        life.killed = time.monotonic()
        life.signal(signal.SIGKILL)
        over()
        return CUT if amount < 0.4 else PASS
    if kind in ("stopped", "stopped too long"):
        life.signal(signal.SIGSTOP)
        if kind == "stopped too long" and amount < 0.7:
            stage.hold_another(life.worker)  # else they may be done when it wakes

        def wake() -> None:
            time.sleep(lease * (0.6 * amount if kind == "stopped" else 1.4))  # how long it lasts
            life.signal(signal.SIGCONT)
            stage.hold(None)
            over()

        stage.background(wake)
        return PASS

    def evict() -> None:
        for attempt in range(20):
            try:
                with Job(stage.server.url, JOB) as job:
                    pids = {member.pid for member in job.status().members if member.worker == str(life.worker)}
                    if job.evict(life.worker):
                        for one in stage.lives:
                            if one.process.pid in pids:
                                one.evicted = time.monotonic()
                    else:
                        injected.note = "was not a member"
                    break
            except SSPError as error:
                injected.note = f"was not a member ({type(error).__name__})"
                if attempt:
                    time.sleep(0.1)  # the server is being mended
        over()

    def take_over(stopped: bool) -> None:
        if stopped:
            life.signal(signal.SIGSTOP)
        other = stage.spawn(life.worker)
        begun.append(other)
        if other:
            stage.until(lambda: other.ended or other.last("joined"), 15)
        life.signal(signal.SIGCONT)
        over()

    begun: list[Life | None] = []
    if kind != "evicted":
        thread = stage.background(lambda: take_over(kind == "taken over stopped"))
        if amount < 0.5 and chunk:
            # what is being sent arrives when the other is in
            stage.until(lambda: not thread.is_alive() or (begun and begun[0] and begun[0].last("joined")), 0.4)
    elif amount < 0.5 and chunk:
        evict()  # what is being sent arrives afterwards
    else:
        stage.background(evict)
    return PASS


# -- the server


def _server(stage: Stage, planned: Planned, life: Life, phase: str, begun: Callable[[], None]) -> None:
    with stage.server_lock:
        if stage.lost is not None:
            begun()
            return
        with stage.admin() as admin:
            injected = stage.note(planned.kind, life, phase, None)
            if KINDS[planned.kind].group == "end":
                # from here on nobody is started again
                stage.lost = injected.begin
            try:
                with _SERVER[planned.kind](stage, admin, planned.amount, injected):
                    begun()
                    shown = sum(one.last("error") is not None for one in stage.lives)
                    if planned.kind in _LASTING:
                        # until somebody was shown an error, or for so long
                        stage.until(
                            lambda: sum(one.last("error") is not None for one in stage.lives) > shown,
                            0.2 + 1.5 * planned.amount,
                        )
            finally:
                injected.end = time.monotonic()
                if stage.lost is not None:
                    stage.lost = injected.end


_LASTING = {"read-only", "memory full", "disk unwritable", "channels forbidden"}
Fault = Callable[[Stage, redis.Redis, float, Injected], "contextlib.AbstractContextManager[None]"]
_SERVER: dict[str, Fault] = {}


def _fault(kind: str) -> Callable[[Callable[[Stage, redis.Redis, float, Injected], Iterator[None]]], None]:
    def register(function: Callable[[Stage, redis.Redis, float, Injected], Iterator[None]]) -> None:
        _SERVER[kind] = contextmanager(function)

    return register


@_fault("scripts flushed")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    admin.script_flush()
    yield


@_fault("clients killed")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    injected.note = f"{admin.execute_command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')} connections"
    yield


@_fault("subscribers killed")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    injected.note = f"{admin.execute_command('CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes')} connections"
    yield


@_fault("server frozen")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    os.kill(stage.server.pid, signal.SIGSTOP)
    yield
    time.sleep(1.2 * stage.schedule.lease)  # how long it lasts
    os.kill(stage.server.pid, signal.SIGCONT)


def _kill(stage: Stage) -> None:
    os.kill(stage.server.pid, signal.SIGKILL)
    assert stage.server.wait_exit(10)


def _evicted_still(stage: Stage) -> None:
    """An eviction that the server has forgotten was none: who is a member again by that has joined once."""
    evicted = [life for life in stage.lives if life.evicted is not None]
    if evicted:
        with contextlib.suppress(SSPError), Job(stage.server.url, JOB) as job:
            pids = {member.pid for member in job.status().members}
            for life in evicted:
                if life.process.pid in pids:
                    life.evicted = None


@_fault("server restarted")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    _kill(stage)
    yield
    stage.server.start()


@_fault("server restarted empty")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    snapshot = Path(admin.config_get("dir")["dir"], admin.config_get("dbfilename")["dbfilename"])
    _kill(stage)
    yield
    snapshot.unlink(missing_ok=True)  # another fault may have left one
    shutil.rmtree(stage.data, ignore_errors=True)
    stage.data.mkdir()
    stage.server.start()


@_fault("server rolled back")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    _kill(stage)
    yield
    part = log_parts(stage.data)[-1]
    size = part.stat().st_size
    cut = min(size // 3, round(200 + amount**3 * 400_000))
    if amount < 0.9:
        cut = max(0, min(cut, size - stage.made))  # else it may forget the tables, too
    os.truncate(part, size - cut)
    injected.note = f"{cut} bytes of {size} gone"
    stage.rolled_back.append(time.monotonic())
    stage.server.start()
    _evicted_still(stage)


@_fault("read-only")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    admin.execute_command("REPLICAOF", "127.0.0.1", "1")  # where no master is
    yield
    admin.execute_command("REPLICAOF", "NO", "ONE")


@_fault("memory full")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    admin.config_set("maxmemory", "1")
    yield
    admin.config_set("maxmemory", "0")


@_fault("disk unwritable")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    # where the snapshot would go is a directory: also for root, a file cannot be put in its place
    obstacle = f"{admin.config_get('dir')['dir']}/{admin.config_get('dbfilename')['dbfilename']}"

    def saved(state: str) -> None:
        eventually(lambda: not admin.info("persistence")["rdb_bgsave_in_progress"])
        with contextlib.suppress(redis.ResponseError):
            admin.bgsave()
        eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == state)

    with contextlib.suppress(FileNotFoundError):
        os.unlink(obstacle)  # of the last time
    os.makedirs(f"{obstacle}/full", exist_ok=True)
    admin.config_set("save", "3600 1000000")
    saved("err")
    yield
    shutil.rmtree(obstacle)
    admin.config_set("save", "")
    saved("ok")


@_fault("channels forbidden")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    admin.execute_command("ACL", "SETUSER", "default", "resetchannels")
    yield
    admin.execute_command("ACL", "SETUSER", "default", "allchannels")


@_fault("keys flushed")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    admin.flushall()
    yield


@_fault("keys evicted")
def _(stage: Stage, admin: redis.Redis, amount: float, injected: Injected) -> Iterator[None]:
    before = set(admin.keys("ssp:*"))
    admin.config_set("maxmemory-policy", "allkeys-random")
    admin.config_set("maxmemory", str(int(admin.info("memory")["used_memory"] - 1000 - amount * 200_000)))
    stage.until(lambda: set(admin.keys("ssp:*")) < before, 2)
    admin.config_set("maxmemory", "0")
    admin.config_set("maxmemory-policy", "noeviction")
    gone = sorted(key.decode().partition("}:")[2] for key in before - set(admin.keys("ssp:*")))
    injected.note = f"gone: {' '.join(gone[:20])}"
    yield
