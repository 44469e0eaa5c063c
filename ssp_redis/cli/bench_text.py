"""The figures of ``ssp-redis bench`` for people."""

from __future__ import annotations

from typing import Any

from ssp_redis.bench.suite import KIB, KINDS, MIB
from ssp_redis.cli import format


def text_of(part: str, document: dict[str, Any]) -> str:
    """One part of what was measured: ``about``, or a measurement under its heading."""
    if part == "about":
        return _about(document)
    layout = {"tick": _tick, "wake": _wake, "idle": _idle, "rate": _rate}.get(part, _dense)
    return f"{part} — {KINDS[part]}\n{layout(document[part])}"


def _about(document: dict[str, Any]) -> str:
    about = document["about"]
    where = f"private, {about['url']}" if about["private"] else about["url"]
    return (
        f"ssp-redis {document['ssp_redis']}, {about['server']} ({where}), Python {about['python']}, numpy "
        f"{about['numpy']}, redis-py {about['redis_py']}, {about['machine']}, {about['cores']} cores, load "
        f"{about['load']}, median of {document['rounds']}{', quick' * document['quick']}"
    )


def _tick(found: dict[str, Any]) -> str:
    rows = [["", "members", "min", "median us", "p99 us", "x bare", "at the server us"]]
    bare = found["bare"]
    rows.append(
        ["bare script", "", "", f"{bare['median_us']:.1f}", f"{bare['p99_us']:.0f}", "", f"{found['bare_server_us']}"]
    )
    for case in found["cases"]:
        trip = case["trip"]
        times = [f"{trip['median_us']:.1f}", f"{trip['p99_us']:.0f}", f"{case['ratio']:.2f}", f"{case['server_us']}"]
        rows.append(["tick", format.count(case["members"]), case["min"], *times])
    many = format.count(found["cases"][1]["members"])
    server, trip = found["growth_server"], found["growth_trip"]
    growth = ", ".join(
        f"{server[state]:.2f} at the server and {trip[state]:.2f} there and back where the min {what}"
        for state, what in (("still", "stands still"), ("moves", "moves"))
    )
    return (
        f"{format.table(rows, left=(0, 2))}\n{many} members against 2: {growth}; "
        f"{found['commands_per_tick']:g} command(s) a tick"
    )


def _wake(found: dict[str, Any]) -> str:
    rows = [["", "median us", "p99 us", "worst us"]]
    names = {"tick": "tick → wait returns", "publish": "redis-py publish → get_message", "poll": "poll each 10 ms"}
    for way, name in names.items():
        one = found[way]
        rows.append([name, f"{one['median_us']:.0f}", f"{one['p99_us']:.0f}", f"{one['worst_us']:.0f}"])
    return (
        f"{format.table(rows)}\n{found['ratio']:.2f} times the raw hop; the poll takes {found['poll_ratio']:.1f} times "
        "as long"
    )


def _idle(found: dict[str, Any]) -> str:
    beats = found["heartbeats"]
    beside = (
        "heartbeats among them" if beats is None else f"and {beats} heartbeats (lease {found['lease_seconds']:g} s)"
    )
    return (
        f"{found['commands']} commands in {found['seconds']:g} s, {found['commands_per_recheck']:g} for each re-check "
        f"of {found['recheck_seconds']:g} s, {beside}"
    )


def _rate(found: dict[str, Any]) -> str:
    return (
        f"{format.count(found['clocks_per_second'])} clocks/s in all ({format.count(found['least'])} to "
        f"{format.count(found['most'])}), {format.counted(found['workers'], 'worker')}, "
        f"staleness {_bound(found['staleness'])}; {format.count(found['scripts_per_second'])} bare scripts/s "
        "by the same processes"
    )


def _dense(cells: list[dict[str, Any]]) -> str:
    heading = ["table", "workers", "staleness", "flush_every", "clock ms", "blob ms", "blocks ms"]
    rows = [[*heading, "x blob", "x blocks", "in x table", "out x table", "wait ms", "push ms", "pull ms"]]
    for cell in cells:
        millis = [f"{cell[name]['median']:.2f}" for name in ("clock_ms", "blob_ms", "blocks_ms")]
        ratios = [
            f"{cell[name]['median']:.2f} ({cell[name]['least']:.2f}–{cell[name]['most']:.2f})" for name in _RATIOS
        ]
        tables = [f"{cell[name]['median']:.2f}" for name in ("in_tables", "out_tables")]
        parts = [f"{cell[name]['median']:.2f}" for name in ("wait_ms", "push_ms", "pull_ms")]
        place = [str(cell["workers"]), _bound(cell["staleness"]), str(cell["flush_every"])]
        rows.append([_size(cell["nbytes"]), *place, *millis, *ratios, *tables, *parts])
    computing = cells[0]["compute"]
    after = (
        f"\n{computing * 1000:g} ms of computing in every clock, {cells[0]['slowest']:g} times that in worker 0's; "
        "the limits likewise"
        if computing
        else ""
    )
    return format.table(rows) + after


_RATIOS = ("blob_ratio", "blocks_ratio")


def _bound(staleness: int | None) -> str:
    return "inf" if staleness is None else str(staleness)


def _size(nbytes: int) -> str:
    return f"{nbytes / MIB:g} MiB" if nbytes >= MIB else f"{nbytes / KIB:g} KiB"
