"""``ssp-redis bench``: clock and tables on a server of the user's own, each figure beside its limit."""

from __future__ import annotations

import json
import math
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ssp_redis import __version__
from ssp_redis.bench import suite
from ssp_redis.bench.scene import scene
from ssp_redis.bench.suite import KINDS, Wish
from ssp_redis.cli.bench_text import text_of
from ssp_redis.cli.options import TWINS, Seconds, json_option, option, quiet_option, url_option
from ssp_redis.cli.signals import leave_on_signals

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMG])(i)?)?B?\Z", re.IGNORECASE)
_KINDS = "\n".join(f"      {kind:<10} {what}" for kind, what in KINDS.items())


class Many(ParamType):
    """Several whole numbers with commas between them; some words stand for numbers."""

    def __init__(self, name: str, least: int, words: dict[str, int] | None = None) -> None:
        self.name = name
        self._least = least
        self._words = words or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Called by click."""
        if isinstance(value, tuple):
            return value
        return tuple(self._one(text.strip().lower(), param, ctx) for text in str(value).split(","))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if text in self._words:
            return self._words[text]
        if not text.isdecimal() or int(text) < self._least:
            also = "".join(f" or {word}" for word in self._words)
            self.fail(f"{text!r} is not a whole number from {self._least} up{also}", param, ctx)
        return int(text)


class Factor(click.FloatRange):
    """A number in a range, which NaN is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Called by click."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class Sizes(ParamType):
    """Several sizes with commas between them: 40KiB, 4MiB, 1e6 bytes as 1MB."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Called by click."""
        if isinstance(value, tuple):
            return value
        sizes = []
        for text in str(value).split(","):
            match = _SIZE.match(text.strip())
            if not match:
                self.fail(f"{text!r} is not a size: use 40KiB, 4MiB or 40MB", param, ctx)
            base = 1024 if match[3] else 1000
            sizes.append(int(float(match[1]) * base ** " KMG".index((match[2] or " ").upper())))
        return tuple(sizes)


@click.command(
    epilog=TWINS,
    help=f"""Measure clock and tables, each figure beside its limit in the same run.

    Without a URL a private server is started for it. On a server of yours nothing is left behind, but what else goes on
    there is measured as well. KIND is one or more of these; without any, all run, which takes some minutes:

    \b
{_KINDS}

    Figures are medians of several rounds, taken in turns. Exactness of the sums and the bound on what each read holds
    are checked in every run; a run that is wrong has no figures.

    \b
      ssp-redis bench --quick
      ssp-redis bench tick wake --url redis://host
      ssp-redis bench dense -n 2,4,8 --size 4MiB,40MiB -s 0,3 --json
    """,
)
@click.argument("kinds", nargs=-1, metavar="[KIND]...", type=click.Choice(list(KINDS)))
@url_option
@option("--tcp", is_flag=True, help="Reach the private server over TCP instead of a unix socket.")
@option("--workers", "-n", type=Many("numbers", 1), metavar="N,…", help="Numbers of workers.")
@option("--size", "sizes", type=Sizes(), metavar="SIZE,…", help="Sizes of the table.")
@option("--staleness", "-s", type=Many("clocks", 0, {"inf": -1}), metavar="CLOCKS|inf,…", help="Values of staleness.")
@option(
    "--flush-every",
    type=Many("clocks", 1, {"auto": 0}),
    metavar="CLOCKS|auto,…",
    help="Clocks whose deltas are pushed as one.  [default: auto, half of the staleness]",
)
@option("--clocks", "-c", type=click.IntRange(min=1), metavar="N", help="Clocks of each worker in each round.")
@option("--compute", type=Seconds(), help="Pause in every clock that stands for computing.")
@option("--slowest", type=Factor(1, 1000), metavar="X", help="Worker 0 pauses so many times as long.")
@option("--members", type=click.IntRange(min=2), metavar="N", help="Members of the large job of tick.")
@option("--rounds", type=click.IntRange(min=1), metavar="N", help="Rounds.  [default: 3]")
@option("--quick", is_flag=True, help="Small and once: does it run, is it exact? The figures mean little.")
@option("--timeout", type=Seconds(), default=300.0, help="Give up when one run takes longer.  [default: 5m]")
@json_option
@quiet_option
def bench(
    kinds: tuple[str, ...], url: str | None, tcp: bool, timeout: float, as_json: bool, quiet: bool, **asked: Any
) -> None:
    """Measure; the help is given above."""
    wish = Wish(timeout=timeout, **{name: value for name, value in asked.items() if value is not None})
    kinds = tuple(dict.fromkeys(kinds)) or tuple(KINDS)
    suite.check(kinds, wish)
    leave_on_signals()
    shown = not quiet and sys.stderr.isatty()
    with scene(url, tcp=tcp) as where:
        about = where.describe()
    document: dict[str, Any] = {"ssp_redis": __version__, "about": about, "rounds": wish.times(), "quick": wish.quick}
    if not as_json:
        click.echo(text_of("about", document))
    for kind in kinds:
        document[kind] = suite.run(kind, url, wish, tcp, partial(_progress, kind) if shown else lambda text: None)
        if not as_json:
            click.echo("\n" + text_of(kind, document))
    if as_json:
        click.echo(json.dumps(document))


def _progress(kind: str, text: str) -> None:
    click.echo(f"{kind}: {text}", err=True)
