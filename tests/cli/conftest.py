"""The command as its users meet it: a process of its own, with none of our environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment() -> dict[str, str]:
    """Ours without anything that tells a worker its place."""
    foreign = ("SSP_REDIS_", "REDIS_URL", "RANK", "WORLD_SIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    # From a checkout that is not installed, too; the children of `launch` need it as well.
    kept["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    if server := os.environ.get("SSP_REDIS_TEST_SERVER"):
        kept["SSP_REDIS_SERVER"] = server
    return kept


@pytest.fixture(autouse=True)
def no_environment_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SSP_REDIS_", "REDIS_URL", "RANK", "WORLD_SIZE")) and name != "SSP_REDIS_TEST_SERVER":
            monkeypatch.delenv(name)


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)


@pytest.fixture
def ssp(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """Runs ``ssp-redis WORDS`` in an empty directory; keywords become environment variables."""

    def run(*words: str, code: int | None = 0, timeout: float = 60, **more: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "ssp_redis", *words],
            cwd=tmp_path,
            env=environment | more,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr or code is None, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``ssp-redis WORDS`` and does not wait; what still runs after the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def popen(*words: str, **more: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "ssp_redis", *words],
                cwd=tmp_path,
                env=environment | more,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield popen
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
