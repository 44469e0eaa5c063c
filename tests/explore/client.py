"""What becomes of the processes when the server has answered: the steps of ``ssp_redis/clock.py``, in small."""

from __future__ import annotations

from .engine import Outcome
from .moves import Bounds, Client, Move
from .world import EXPIRED, LIVE, RECENT, Process, Truth, World, record


def after(world: World, move: Move, outcome: Outcome, bounds: Bounds, client: Client) -> World:
    """The world once the call of ``move`` has had its ``outcome``."""
    changed = outcome.after is not None
    new = world if outcome.after is None else world.having(server=outcome.after)
    if changed and new.backup is not None:
        new = new.having(age=new.age + 1)
        if new.age > bounds.window:
            new = new.having(backup=None, age=0)
    code, *words = outcome.answer.split(" ")
    if changed:
        new = new.having(renewed=_renewed(world, new, move))
    if move.kind == "sync" and not move.heard and code == "0" and move.caller == world.current[move.worker]:
        new = _owes(world, new, move)
    if move.heard:
        process = world.current[move.worker]
        assert process is not None
        new = _answered(new, move, process, code, words, client)
    if outcome.published:
        new = _hears(new, Truth.of_message(outcome.published[-1]), client)
    return new


def _renewed(before: World, after: World, move: Move) -> tuple[str, ...]:
    """Members to whom somebody else's sync has forgiven a silence, this time or before, since they spoke."""
    members = set(after.server["leases"])
    now = set(before.renewed) & members
    if move.kind in ("sync", "observe") and before.server["config"]["time"] != RECENT:
        now = members & set(before.server["leases"])
    for worker, score in after.server["leases"].items():
        if score == LIVE and before.server["leases"].get(worker) == EXPIRED:
            now.add(worker)
    if move.kind in ("join", "sync"):
        now.discard(move.worker)
    return tuple(sorted(now))


def _owes(before: World, after: World, move: Move) -> World:
    """A heartbeat may have restored the worker's clock without the worker knowing."""
    worker, process = move.worker, before.current[move.worker]
    assert process is not None
    old, new = record(before.server, worker), record(after.server, worker)
    stored = int(before.server["clocks"].get(worker, 0))
    if new and stored < process.clock and (old is None or old.restored != new.restored):
        owed = stored if process.owed < 0 else min(stored, process.owed)
        return after.with_current(worker, process._replace(owed=owed))
    return after


def _answered(world: World, move: Move, process: Process, code: str, words: list[str], client: Client) -> World:
    worker = move.worker
    if code == "-4":
        return world.with_current(worker, process._replace(connected=False))
    if code != "0" or move.kind == "leave":
        return world.without(worker)
    epoch, clock, end = int(words[0]), int(words[6]), int(words[7])
    if move.kind == "join":
        tag = next(at for at, word in enumerate(words) if ":" in word)
        process = process._replace(
            run=words[9],
            incarnation=int(words[8]),
            epoch=epoch,
            clock=clock,
            position=int(words[tag - 1]),
            tag=words[tag],
        )
    elif move.kind == "tick":
        if not process.pending:
            tag = f"t:{worker}:{process.incarnation}:{process.clock + 1}:-:"
            process = process._replace(position=end - 1, tag=tag)
        process = process._replace(clock=process.pending or process.clock + 1, pending=0)
    else:
        restored, position, tag = words[10], int(words[11]), words[12]
        if process.pending == clock and restored == process.restored:
            process = process._replace(clock=clock, pending=0)
        elif restored != process.restored and clock > process.clock:
            # ticks of a process that this one had superseded: go on from there, with the tick that is under way too
            moved = process.pending and process.pending + clock - process.clock
            process = process._replace(clock=clock, pending=moved)
        process = process._replace(epoch=epoch, restored=restored, position=position, tag=tag, owed=-1)
    process = process._replace(connected=True)
    if not process.pending:
        now = Truth(process.run, epoch, int(words[1]), int(words[2]), int(words[3]), words[4], words[5])
        process = client.admitted(process, now)
    return world.with_current(worker, process)


def _hears(world: World, now: Truth, client: Client) -> World:
    """Everybody who waits hears what was published of its run (``Clock._hear``); an unknown epoch means: sync."""
    current = dict(world.current)
    for worker, process in current.items():
        if process and process.phase == "waiting" and process.connected and client.listens_to(process, now):
            same = now.epoch == process.epoch
            current[worker] = client.admitted(process, now) if same else process._replace(connected=False)
    return world.having(current=current)
