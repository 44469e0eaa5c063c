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
import remote

Run = Callable[..., Any]
Start = Callable[..., "subprocess.Popen[str]"]


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

    @property
    def findings(self) -> dict[str, dict[str, str]]:
        """Of ``check --json``: the last of each name."""
        return {finding["name"]: finding for finding in self.json["findings"]}


def environment(**more: str) -> dict[str, str]:
    """This one without anything that tells a worker its place; private servers are the one under test."""
    if server := os.environ.get("SSP_REDIS_TEST_SERVER"):
        more = {"SSP_REDIS_SERVER": server} | more
    return remote.environment(**more)


@pytest.fixture
def ssp(tmp_path: Path) -> Run:
    """Runs ``ssp-redis WORDS`` in an empty directory; keywords become environment variables."""

    def run(*words: str, code: int | None = 0, timeout: float = 90, **more: str) -> Done:
        command = ["-m", "ssp_redis", *words]
        [(ended, out, err)] = remote.run_to_end([command], environment(**more), timeout, tmp_path)
        assert code is None or ended == code, f"{words}: {ended}\n{out}\n{err}"
        assert code is None or "Traceback" not in err, err
        return Done(ended, out, err)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``ssp-redis WORDS`` and does not wait; what still runs after the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def popen(*words: str, **more: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "ssp_redis", *words],
                cwd=tmp_path,
                env=environment(**more),
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
