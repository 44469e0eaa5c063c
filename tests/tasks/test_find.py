"""From a name on the command line to a task and its options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from ssp_redis.errors import UsageError
from ssp_redis.tasks import BUILTIN, Task, find_task, option, options_of, summary_of
from ssp_redis.tasks.task import draws


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; modules imported from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("name", BUILTIN)
def test_every_task_that_comes_along_is_found_and_described(name: str) -> None:
    task = find_task(name)
    assert issubclass(task, Task)
    assert summary_of(task).endswith(".") or summary_of(task).endswith("--data.")
    assert all(found.help for found in options_of(task))


def test_a_class_of_ones_own_is_found_by_module_and_by_file(here: Path) -> None:
    code = "class Mine:\n    def setup(self, worker, clocks): ...\n    def step(self, clock): return 1.0\n"
    (here / "mine.py").write_text(code)
    for name in ("mine:Mine", "mine.py:Mine", str(here / "mine.py") + ":Mine"):
        task = find_task(name)
        assert task.__name__ == "Mine"
        # What it leaves out, it gets.
        assert task().step(0) == 1.0
        assert task().result({}) == {}
        assert task().clocks(4) > 0


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nonsense", r"no task 'nonsense': name one of linreg, softmax, a class as module:Class, or a script"),
        ("mine:", r"no task 'mine:'"),
        ("nowhere:Task", r"no module 'nowhere' here"),
        ("mine:Other", r"no class 'Other' in mine; it has Whole"),
        ("mine:Half", r"mine:Half is not a task: it has no method step"),
        ("absent.py:Task", r"no file 'absent.py'"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_there_is(here: Path, name: str, complaint: str) -> None:
    (here / "mine.py").write_text(
        "class Half:\n    def setup(self, worker, clocks): ...\nclass Whole(Half):\n    def step(self, clock): ...\n"
    )
    with pytest.raises(UsageError, match=complaint):
        find_task(name)


def test_a_module_that_its_module_lacks_is_not_taken_for_the_missing_one(here: Path) -> None:
    (here / "mine.py").write_text("import surely_not_installed\n")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        find_task("mine:Task")


def test_the_fields_of_a_task_are_its_options() -> None:
    @dataclass
    class Fit(Task):
        rate: float | None = option(None, "how fast")
        many_rows: int = option(3, "how many")
        kind: Literal["a", "b"] = option("a", "which")
        hidden: int = field(default=0, init=False)

    rate, rows, kind = options_of(Fit)
    assert (rate.flag, rate.type, rate.default, rate.help) == ("--rate", float, None, "how fast")
    assert (rows.flag, rows.type, rows.default) == ("--many-rows", int, 3)
    assert kind.choices == ("a", "b")
    assert summary_of(Fit) == ""


def test_an_option_that_no_command_line_can_give_is_named() -> None:
    @dataclass
    class Fit(Task):
        names: dict[str, int] = field(default_factory=dict)

    with pytest.raises(UsageError, match="option 'names' of task Fit cannot be given on a command line"):
        options_of(Fit)

    @dataclass
    class Bare(Task):
        rate: float

    with pytest.raises(UsageError, match="option 'rate' of task Bare has no default"):
        options_of(Bare)


def test_every_worker_and_part_draws_its_own_numbers_and_always_the_same() -> None:
    def first(*which: object) -> float:
        return float(draws(*which).random())  # type: ignore[arg-type]

    assert first(0, "1", 0) == first(0, "1", 0)
    assert len({first(0, "1", 0), first(0, "2", 0), first(0, "1", 1), first(1, "1", 0), first(0, "01", 0)}) == 5
