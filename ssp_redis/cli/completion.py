"""``ssp-redis completion``: completion of commands and options for a shell."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from ssp_redis.errors import UsageError

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SSP_REDIS_COMPLETE"


@click.command()
@click.argument("shell", required=False, type=click.Choice(_SHELLS), metavar="[bash|zsh|fish]")
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print what a shell needs to complete ssp-redis commands.

    \b
      bash, in ~/.bashrc:  eval "$(ssp-redis completion bash)"
      zsh, in ~/.zshrc:    eval "$(ssp-redis completion zsh)"
      fish:                ssp-redis completion fish > ~/.config/fish/completions/ssp-redis.fish
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    kind = get_completion_class(shell) if shell in _SHELLS else None
    if kind is None:
        raise UsageError(f"which shell? Name one of {', '.join(_SHELLS)}")
    click.echo(kind(ctx.find_root().command, {}, "ssp-redis", _VARIABLE).source())
