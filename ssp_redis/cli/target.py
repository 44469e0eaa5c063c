"""``TASK|SCRIPT`` on the command line, and the options that belong to it.

A task's options are flags like the command's own and may stand among them, after the task's name; ``-h`` after a task's
name shows both. What stands after a script's name is the script's, as with ``python train.py …``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ssp_redis.cli.options import F, twin
from ssp_redis.errors import UsageError
from ssp_redis.tasks import BUILTIN, Option, Task, find_task, options_of, summary_of

DEFAULT = "linreg"
_META = "ssp_redis.target"
_FLAGS = "ssp_redis.flags"


class Target:
    """What is to be run: a task class with its options, or a script with its arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_script = name.endswith(".py")
        self.task: type[Task] | None = None
        #: Of a task: option -> value. A script's arguments are in ``arguments``.
        self.values: dict[str, Any] = {}
        self.arguments: list[str] = []
        if self.is_script:
            if not os.path.isfile(name):
                raise UsageError(f"no script {name!r} here ({os.getcwd()})")
        else:
            self.task = find_task(name)

    @property
    def title(self) -> str:
        """Short name: the task's, the class's, or the script's."""
        return self.name if not self.task or self.name in BUILTIN else self.name.rpartition(":")[2]

    @property
    def job(self) -> str:
        """Name of the job when nobody gives one."""
        word = Path(self.name).stem if self.is_script else self.title
        return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in word)[:64]

    @property
    def options(self) -> list[Option]:
        """Those of the task."""
        return options_of(self.task) if self.task else []

    def make(self) -> Task:
        """The task, with the options given."""
        if self.task is None:
            raise UsageError(f"{self.name} is a script, not a task")
        return self.task(**self.values)

    def words(self) -> list[str]:
        """The target as words of another process's command line, options from the environment included."""
        words = [self.name]
        for option in self.options:
            value = self.values.get(option.name, option.default)
            if value == option.default:
                continue
            if option.type is bool:
                words.append(option.flag if value else "--no-" + option.flag[2:])
            else:
                words.append(f"{option.flag}={value}")
        return words + self.arguments


class TargetCommand(click.Command):
    """A command that takes a target: finds it first, then parses with its options added."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Called by click."""
        ctx.allow_interspersed_args = False
        try:
            given, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            hint = f"{error.message} (a task's own come after its name: {self.name} TASK {error.option_name} …)"
            raise click.NoSuchOption(error.option_name, hint, error.possibilities, ctx) from None
        first = given.get("target")
        # click's own word for "not given" differs from one version to the next
        name = first if isinstance(first, str) else os.environ.get(twin("task")) or DEFAULT
        try:
            target = Target(name)
            # A task's flags may be mixed with the command's; what follows a script must be left alone.
            ctx.allow_interspersed_args = not target.is_script
            ctx.meta[_META] = target
            ctx.meta[_FLAGS] = [_flag(option) for option in target.options]
            self._refuse_doubles(target, ctx)
        except UsageError as error:
            if ctx.resilient_parsing:
                return super().parse_args(ctx, args)
            raise click.UsageError(str(error), ctx) from None
        rest = super().parse_args(ctx, args)
        target.arguments = list(ctx.params.pop("arguments", ()))
        ctx.params["target"] = target
        if target.arguments and not target.is_script and not ctx.resilient_parsing:
            ctx.fail(f"unexpected argument {target.arguments[0]!r} after the task {target.name}")
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own, and the task's once it is known."""
        params = super().get_params(ctx)
        # Before the help option, which stands last.
        flags: list[click.Parameter] = ctx.meta.get(_FLAGS, [])
        return params[:-1] + flags + params[-1:]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both, in two sections."""
        own = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl([record for param in own if (record := param.get_help_record(ctx))])
        target = ctx.meta.get(_META)
        if target and target.task:
            records = [flag.get_help_record(ctx) for flag in ctx.meta[_FLAGS]]
            with formatter.section(f"Options of {target.title}"):
                if summary := summary_of(target.task):
                    formatter.write_text(summary)
                    formatter.write_paragraph()
                formatter.write_dl([record for record in records if record])

    def _refuse_doubles(self, target: Target, ctx: click.Context) -> None:
        taken = {flag for param in super().get_params(ctx) for flag in param.opts}
        for option in target.options:
            if option.flag in taken:
                raise UsageError(
                    f"option {option.name!r} of {target.name} hides {option.flag} of the command: rename it"
                )


def target_argument(function: F) -> F:
    """The arguments ``[TASK|SCRIPT] [ARGS]...``, for a :class:`TargetCommand`."""
    rest = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
    first = click.argument("target", required=False, metavar="[TASK|SCRIPT]", shell_complete=_complete)
    return first(rest(function))


def _flag(option: Option) -> click.Option:
    attributes: dict[str, Any] = {
        "type": click.Choice(option.choices) if option.choices else _TYPES.get(option.type, option.type),
        "default": option.default,
        "show_default": option.default is not None and option.type is not bool,
        "help": option.help,
        "envvar": twin(option.flag),
        "expose_value": False,
        "callback": _keep(option),
    }
    if option.type is bool:
        return click.Option([f"{option.flag}/--no-{option.flag[2:]}", f"task_{option.name}"], **attributes)
    return click.Option([option.flag, f"task_{option.name}"], **attributes)


_TYPES: dict[type, Any] = {Path: click.Path(path_type=Path)}


def _keep(option: Option) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[_META].values[option.name] = value

    return keep


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [CompletionItem(name, help=summary_of(find_task(name))) for name in BUILTIN if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]
