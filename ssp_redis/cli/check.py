"""``ssp-redis check``: is this server fit?"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ssp_redis.cli import fitness
from ssp_redis.cli.exits import Failure
from ssp_redis.cli.options import TWINS, json_option, url_option
from ssp_redis.config import resolve_url
from ssp_redis.connection import Endpoint
from ssp_redis.errors import ServerUnavailable

_COLORS = {fitness.OK: "green", fitness.WARN: "yellow", fitness.UNFIT: "red"}


@click.command(epilog=TWINS)
@url_option
@json_option
def check(url: str | None, as_json: bool) -> None:
    """See whether a server is fit for jobs: version, settings, cluster, rights, round trip and wake-up.

    Names each setting that is not, and what to set. Exits with 1 when something would break a job; a warning does not.
    """
    mark = fitness.tag()
    endpoint = Endpoint(resolve_url(url), key=mark)
    found = []
    try:
        wires = endpoint.connect(), endpoint.connect()
        others = endpoint.connect_all() if endpoint.kind == "cluster" else []
    except OSError as error:
        raise ServerUnavailable(str(error)) from None
    for finding in fitness.examine(*wires, mark, endpoint, others):
        found.append(finding)
        if not as_json:
            level = click.style(f"{finding.level:<5}", fg=_COLORS[finding.level])
            click.echo(f"{level}  {finding.name:<21}  {finding.value}")
            if finding.advice:
                click.echo(f"{'':<30}-> {finding.advice}")
    unfit = [finding.name for finding in found if finding.level == fitness.UNFIT]
    if as_json:
        click.echo(
            json.dumps({"url": endpoint.label, "fit": not unfit, "findings": [asdict(finding) for finding in found]})
        )
    if unfit:
        raise Failure(f"{endpoint.label} is not fit: {', '.join(unfit)}")
    if not as_json:
        click.echo(f"\n{endpoint.label} is fit")
