"""Exit codes, and the one place where an exception becomes one.

A script that starts ``ssp-redis`` decides by the code alone: 69 and 75 are worth another try, 76 is not (another
process has this worker's id), 2 needs a human, and above 128 somebody wanted it to end.
"""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path
from typing import IO, Any

import click

from ssp_redis.errors import ServerUnavailable, SSPError, Superseded, UsageError, WaitTimeout

OK = 0
FAILED = 1
USAGE = 2
NO_SERVER = 69
TIMED_OUT = 75
SUPERSEDED = 76
#: More than the number of the signal that ended it, as in a shell: 130 is Ctrl-C, 143 SIGTERM.
SIGNALLED = 128

_CODES: list[tuple[type[BaseException], int]] = [
    (UsageError, USAGE),
    (Superseded, SUPERSEDED),
    (WaitTimeout, TIMED_OUT),
    (ServerUnavailable, NO_SERVER),
    (SSPError, FAILED),
    (KeyboardInterrupt, SIGNALLED + signal.SIGINT),
]


#: Where ``python -m ssp_redis`` begins.
_MAIN = str(Path(__file__).parents[1] / "__main__.py")


class Failure(click.ClickException):
    """A message of one line (or a few) on stderr, and a code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        # a class variable to click's types, an attribute to its code
        vars(self)["exit_code"] = code

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        click.echo(f"{click.style('ssp-redis:', bold=True)} {self.format_message()}", err=True)


class Interrupted(KeyboardInterrupt):
    """A signal. A KeyboardInterrupt, so that a script that handles Ctrl-C handles SIGTERM as well."""

    def __init__(self, number: int, how: str = "interrupted") -> None:
        super().__init__(f"{how} by {signal.Signals(number).name}")
        self.number = number


def by_signal(number: int) -> int:
    """The exit code of what a signal has ended."""
    return SIGNALLED + number


def code_of(error: BaseException) -> int | None:
    """The exit code for ``error``, or None for one that nobody foresaw and that deserves its traceback."""
    if isinstance(error, Interrupted):
        return by_signal(error.number)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return None


def message_of(error: BaseException) -> str:
    """What to print for ``error``."""
    return str(error) or ("interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__)


def trace_of(error: BaseException) -> str:
    """The traceback of ``error`` without the frames of this command line: it begins where the user's code does."""
    trace = traceback.TracebackException.from_exception(error)
    ours = (os.path.dirname(__file__), os.path.dirname(click.__file__), "<frozen ")
    theirs = [frame for frame in trace.stack if not frame.filename.startswith(ours)]
    while theirs and theirs[0].name in ("<module>", "_run_module_as_main") and theirs[0].filename == _MAIN:
        del theirs[0]
    if theirs:
        trace.stack = traceback.StackSummary.from_list(theirs)
    return "".join(trace.format()).rstrip()


class Commands(click.Group):
    """The group of all commands: what they raise ends here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Called by click."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = {name for command in self.commands.values() for option in command.params for name in option.opts}
            if error.option_name not in known:
                raise
            hint = f"{error.message.rstrip('.')}: it comes after the command, ssp-redis COMMAND {error.option_name} …"
            raise click.NoSuchOption(error.option_name, hint, error.possibilities, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (SSPError, KeyboardInterrupt) as error:
            raise Failure(message_of(error), code_of(error) or FAILED) from None
