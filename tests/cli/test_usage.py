"""What is typed wrongly is refused before anything starts, and the message names the culprit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ssp_redis.cli import main


@pytest.fixture(autouse=True)
def empty_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty directory; modules imported from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def invoke(*words: str, **environment: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words), env=environment, prog_name="ssp-redis")
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("launch nonsense", "no task 'nonsense': name one of linreg, softmax"),
        ("launch linreg extra", "unexpected argument 'extra' after the task linreg"),
        ("launch --learning-rate 1", "come after its name: launch TASK --learning-rate"),
        ("launch linreg --batch 3", "No such option"),
        ("--url redis://localhost status", "it comes after the command, ssp-redis COMMAND --url"),
        ("-j demo status", "it comes after the command, ssp-redis COMMAND -j"),
        ("--nonsense status", "No such option"),
        ("launch missing.py --lr 3", "no script 'missing.py'"),
        ("launch -n 0", "0 is not in the range"),
        ("launch -n four", "'four' is not a valid integer"),
        ("launch --clocks 0", "'--clocks' / '-c': 0 is not in the range"),
        ("launch --clocks -5", "-5 is not in the range"),
        ("launch --staleness -1", "'-1' is not a staleness: use 0"),
        ("launch --staleness 1.5", "'1.5' is not a staleness"),
        ("launch --staleness 2147483648", "'2147483648' is not a staleness"),
        ("launch --lease 1e9h", "'1e9h' is not a time"),
        ("launch --lease 9999999h", "'9999999h' is longer than"),
        ("launch --job a/b", "job 'a/b' is not a name"),
        ("launch --lease never", "'never' is not a time"),
        ("launch --lease 0", "'0' must be above 0"),
        ("launch --timeout 0s", "'0s' must be above 0"),
        ("launch --straggle 0:fast", "'fast' is neither a factor (3x) nor a time"),
        ("launch --straggle 0:0.5x", "a worker can only be slowed"),
        ("launch --straggle 0:3x@0%", "0% is not a share of the clocks"),
        ("launch --straggle 0:1:2x", "is not ID:3x or ID:20ms"),
        ("launch --straggle a/b:2x", "worker 'a/b' is not a name"),
        ("launch linreg --learning-rate 0", "--learning-rate 0 must be above 0"),
        ("worker --id a/b", "worker 'a/b' is not a name"),
        ("worker", "no server: give its URL"),
        ("worker --url http://localhost", "a server's URL begins with redis://"),
        ("worker --url localhost:6379", "for localhost:6379 write redis://localhost:6379"),
        ("launch ./here:Task", "no module './here': name it as in an import, package.module"),
        ("launch .here:Task", "no module '.here': name it as in an import, package.module"),
        ("tick --id 0", "Missing option '--clock'"),
        ("tick --id 0 --clock -1", "-1 is not in the range"),
        ("tick --id 0 --clock 1", "which job? Name it with --job"),
        ("tick j --id 0 --clock 9007199254740993", "is not in the range 0<=x<=9007199254740992"),
        ("tick a --job b --id 0 --clock 1", "which job? a stands by itself, and --job says b: name one"),
        ("delete a -j b", "which job? a stands by itself, and --job says b: name one"),
        ("status a -j b", "a stands by itself, and --job says b"),
        ("snapshot a x.npz -j b", "a stands by itself, and --job says b"),
        ("restore a x.npz -j b", "a stands by itself, and --job says b"),
        ("snapshot a b c", "unexpected argument 'c' after the path b"),
        ("restore x.npz", "which job?"),
        ("evict a/b 2", "job 'a/b' is not a name"),
        ("evict a b/c", "worker 'b/c' is not a name"),
        ("set --staleness x", "'x' is not a staleness"),
        ("set", "Missing option '--staleness'"),
        ("evict", "Missing argument '[JOB] ID...'"),
        ("delete", "which job?"),
        ("status", "no server"),
        ("completion", "which shell?"),
        ("status --interval 0", "'0' must be above 0"),
        ("nonsense", "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_code_2_and_named(words: str, complaint: str) -> None:
    code, output = invoke(*words.split(), SHELL="")
    assert (code, complaint in output) == (2, True), output


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SSP_REDIS_WORKERS", "0"),
        ("SSP_REDIS_STALENESS", "-1"),
        ("SSP_REDIS_CLOCKS", "0"),
        ("SSP_REDIS_JOB", "a/b"),
        ("SSP_REDIS_RUN", "a b"),
        ("SSP_REDIS_LEASE", "0"),
        ("SSP_REDIS_TIMEOUT", "x"),
        ("SSP_REDIS_STRAGGLE", "1:x"),
        ("SSP_REDIS_TASK", "nonsense"),
        ("SSP_REDIS_SEED", "x"),
    ],
)
def test_every_flag_has_its_twin_in_the_environment(variable: str, value: str) -> None:
    code, output = invoke("launch", **{variable: value})
    assert code == 2, output


def test_an_empty_variable_is_as_good_as_none() -> None:
    code, output = invoke("launch", "linreg", "--help", SSP_REDIS_WORKERS="", SSP_REDIS_STALENESS="")
    assert code == 0, output


def test_help_after_a_task_shows_the_tasks_options_too() -> None:
    for flag in ("-h", "--help"):
        code, output = invoke("launch", "softmax", flag)
        assert code == 0
        assert "Options of softmax" in output
        assert "--held-out" in output
        assert "--staleness" in output


def test_a_task_with_an_option_of_the_commands_own_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Mine:\n    clocks: int = 3\n"
        "    def setup(self, worker, clocks): ...\n    def step(self, clock): ...\n"
    )
    code, output = invoke("launch", "mine.py:Mine")
    assert code == 2
    assert "option 'clocks' of mine.py:Mine" in output


def test_a_script_cannot_be_slowed_from_outside(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    for command in ("launch", "worker"):
        code, output = invoke(command, "--straggle", "0:2x", "train.py")
        assert code == 2
        assert "--straggle slows tasks" in output


def test_the_version_and_completion_are_there() -> None:
    assert invoke("--version")[1].startswith("ssp-redis")
    for shell in ("bash", "zsh", "fish"):
        code, output = invoke("completion", shell)
        assert code == 0
        assert "_SSP_REDIS_COMPLETE" in output


def test_completion_knows_the_tasks_and_their_options() -> None:
    words = {"COMP_WORDS": "ssp-redis launch s", "COMP_CWORD": "2", "_SSP_REDIS_COMPLETE": "bash_complete"}
    assert "plain,softmax" in CliRunner().invoke(main, [], env=words, prog_name="ssp-redis").output
    words |= {"COMP_WORDS": "ssp-redis launch softmax --held", "COMP_CWORD": "3"}
    assert "plain,--held-out" in CliRunner().invoke(main, [], env=words, prog_name="ssp-redis").output
