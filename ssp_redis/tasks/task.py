"""What a task is: the part of a training program that differs from one model to the next.

Joining, ticking, waiting, progress, accounting and a clean end are the runner's; a task only says which tables there
are and what a worker does in one clock::

    # mymodule.py
    from dataclasses import dataclass

    import numpy as np

    from ssp_redis.tasks import Task, option


    @dataclass
    class Mean(Task):
        \"""The mean of some numbers, by stochastic gradient descent.\"""

        rate: float = option(0.01, "step size")

        def setup(self, worker, clocks):
            self.table = worker.table("mean", np.zeros(1))
            self.random = np.random.default_rng([int(worker.id), worker.clock])

        def step(self, clock):
            error = self.table.get() - self.random.normal(3.0)
            self.table.inc(-self.rate * error)
            return float(error[0]) ** 2

``ssp-redis launch mymodule:Mean -n 4 --rate 0.02`` runs it: the fields of the dataclass are its options on the command
line, and ``SSP_REDIS_RATE`` in the environment. Only ``setup`` and ``step`` are needed, not the base class.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_redis.errors import UsageError

if TYPE_CHECKING:
    from ssp_redis.worker import Worker

#: A job's tables by name, as they stand when they are read.
Parameters: TypeAlias = Mapping[str, NDArray[Any]]


class Task:
    """The runner calls, in this order: ``load``, (joins), ``setup``, ``step`` once a clock, (leaves), ``result``."""

    def load(self) -> None:
        """Read data and import what is heavy. Called before the worker joins, so that nobody waits for it."""

    def clocks(self, workers: int) -> int:
        """Clocks of each of ``workers`` workers when nobody says how many."""
        return 1000

    def setup(self, worker: Worker, clocks: int) -> None:
        """Create the tables. The run ends at clock ``clocks``; a restarted worker begins at ``worker.clock``."""
        raise NotImplementedError

    def step(self, clock: int) -> float | None:
        """Do the work of one clock and return its loss, if there is one. The runner ticks afterwards.

        Draw random numbers from (worker id, clock), so that workers differ and a restarted one goes on where it was.
        """
        raise NotImplementedError

    def result(self, parameters: Parameters) -> Mapping[str, Any]:
        """Judge the trained parameters: ``loss``, ``accuracy``, anything else worth printing.

        Also called where no worker ran, hence without ``setup`` (but after ``load``). ``parameters`` in the answer
        gives small parameters names of their own.
        """
        return {}


def option(default: Any, help: str) -> Any:
    """Field of a task's dataclass with a line of help; its type is the annotation's."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Option:
    """An option of a task, as the command line needs it."""

    name: str
    #: One of str, int, float, bool, Path.
    type: type
    default: Any
    help: str
    #: The only values allowed, when not empty.
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """As it is typed."""
        return "--" + self.name.replace("_", "-")


def options_of(task: type) -> list[Option]:
    """Options of a task class: the fields of its dataclass, none when it is not one."""
    if not dataclasses.is_dataclass(task):
        return []
    hints = typing.get_type_hints(task)
    return [_option_of(task, field, hints[field.name]) for field in dataclasses.fields(task) if field.init]


def summary_of(task: type) -> str:
    """First line of a task's docstring."""
    lines = (inspect.getdoc(task) or "").splitlines()
    # A dataclass without a docstring gets its signature for one.
    return lines[0] if lines and not lines[0].startswith(f"{task.__name__}(") else ""


def _option_of(task: type, field: dataclasses.Field[Any], hint: Any) -> Option:
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        raise UsageError(f"option {field.name!r} of task {task.__name__} has no default: give it one")
    choices: tuple[str, ...] = ()
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        hint = kinds[0] if len(kinds) == 1 else None
    if typing.get_origin(hint) is typing.Literal:
        choices = tuple(typing.get_args(hint))
        hint = str
    if hint not in (str, int, float, bool, Path):
        raise UsageError(
            f"option {field.name!r} of task {task.__name__} cannot be given on a command line: "
            "use str, int, float, bool, Path or Literal, or field(init=False)"
        )
    return Option(field.name, hint, default, field.metadata.get("help", ""), choices)


def draws(seed: int, worker: str, part: int) -> np.random.Generator:
    """Random stream of one worker for one part of its run; no two of (seed, worker, part) share one."""
    return np.random.default_rng([seed, len(worker), int.from_bytes(worker.encode(), "big"), part])
