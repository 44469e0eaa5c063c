"""``python -m tests.explore``: explore by hand, deeper than the test suite does."""

from __future__ import annotations

import argparse
import sys

from ssp_redis.server import EmbeddedServer

from . import live
from .engine import Engine
from .moves import Bounds
from .store import byhand
from .walk import Report, Walk


def main() -> int:
    if "--live" in sys.argv:
        return live.main([word for word in sys.argv[1:] if word != "--live"])
    if "--store" in sys.argv:
        return byhand.main([word for word in sys.argv[1:] if word != "--store"])
    parser = argparse.ArgumentParser(
        prog="python -m tests.explore",
        description=__doc__,
        epilog="--store walks the steps of tables instead, with options of its own: --store --help.",
    )
    parser.add_argument("--server", help="binary of the server (default: as ssp-redis launch)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quorum", type=int, help="how many of them begin (default all)")
    parser.add_argument("--depth", type=int, default=10, help="moves (default 10)")
    parser.add_argument("--edges", type=int, default=1 << 60, help="stop after the level that reaches so many")
    parser.add_argument("--clocks", type=int, default=2)
    parser.add_argument("--starts", type=int, default=2, help="processes per worker")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--other-staleness", type=int, nargs="*", default=(1,), help="values it is changed to")
    parser.add_argument("--rollbacks", type=int, default=1)
    parser.add_argument("--window", type=int, default=4, help="changes that a rollback undoes at most")
    parser.add_argument("--cuts", type=int, default=1, help="how often the log's tail alone is lost")
    parser.add_argument("--joined", action="store_true", help="begin with everybody joined")
    parser.add_argument("--patience", action="store_true", help="the blocked evict whoever holds the min for long")
    for name in ("time", "leaving", "evicting", "stopping", "runs"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True)
    options = vars(parser.parse_args())
    binary, depth, edges = options.pop("server"), options.pop("depth"), options.pop("edges")
    bounds = Bounds(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})

    def progress(report: Report) -> None:
        print(f"depth {report.depth}: {report.states:,} states, {report.edges:,} edges, {report.seconds:.1f} s",
              file=sys.stderr)  # fmt: skip

    with EmbeddedServer(binary) as server:
        report = Walk(Engine(server.url), bounds, depth=depth, edges=edges, progress=progress).run()
    for answer, count in sorted(report.answers.items()):
        print(f"{answer:>14}: {count:,}")
    print(report)
    if report.found:
        print(report.found)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
