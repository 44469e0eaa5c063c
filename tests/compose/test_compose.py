"""The Compose file on a real engine: it comes up, trains, survives a killed worker, scales, and knows when it is done.

Where no engine answers, or there is no Compose, these tests are skipped; ``.ci/compose`` starts an engine and sets
``SSP_REDIS_COMPOSE``, and then they must run. ``SSP_REDIS_COMPOSE_COMMAND`` says which Compose, when there are two.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.compose, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
IMAGE = "ssp-redis-test"
LEASE = 5.0


def run(*command: str, env: dict[str, str] | None = None, timeout: float = 120) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=env, timeout=timeout, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def answers(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def until(holds: Callable[[], Any], timeout: float, what: str) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.3)
    return value


def clocks(status: dict[str, Any]) -> dict[str, int]:
    """The clock of every id, whether it is a member or has departed."""
    return {one["worker"]: one["clock"] for one in status["departed"] + status["members"]}


@dataclass
class Project:
    """One Compose project: its containers, its job as ``ssp-redis status`` tells it, and what its workers print."""

    compose: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"ssp-redis-test-{uuid.uuid4().hex[:8]}")

    def __call__(self, *args: str, **settings: str) -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SSP_REDIS_", "COMPOSE_"))}
        for name in ("SSP_REDIS_BUILD_NETWORK", "SSP_REDIS_EXTRAS"):
            if name in os.environ:
                env[name] = os.environ[name]
        env |= {"SSP_REDIS_IMAGE": IMAGE, "SSP_REDIS_LEASE": f"{LEASE:g}"} | self.settings | settings
        return run(*self.compose, "-p", self.name, *args, env=env, timeout=200)

    def workers(self) -> dict[str, Any]:
        """Every worker container as ``docker inspect`` tells it, by name; those that have ended, too."""
        labels = {"project": self.name, "service": "worker", "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items()]
        ids = run("docker", "ps", "-aq", *filters).split()
        found = json.loads(run("docker", "inspect", *ids)) if ids else []
        return {container["Name"].lstrip("/"): container for container in sorted(found, key=lambda one: one["Name"])}

    def finish(self, timeout: float = 90) -> dict[str, int]:
        """Exit codes of the workers, once none runs."""

        def ended() -> dict[str, int] | None:
            workers = self.workers()
            if any(worker["State"]["Status"] != "exited" for worker in workers.values()):
                return None
            return {name: worker["State"]["ExitCode"] for name, worker in workers.items()}

        return until(ended, timeout, "every worker ends")

    def status(self) -> dict[str, Any]:
        return json.loads(self("run", "--rm", "--no-deps", "-T", "worker", "status", "--json"))

    @contextlib.contextmanager
    def watch(self, container: str) -> Iterator[Iterator[dict[str, Any]]]:
        """One look at the job after another, five a second, from inside a worker that runs."""
        command = ["docker", "exec", container, "ssp-redis", "status", "--json", "--interval", "0.2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as looking:
            assert looking.stdout
            try:
                yield map(json.loads, looking.stdout)
            finally:
                looking.kill()

    def clocks(self) -> dict[str, int]:
        return clocks(self.status())

    def answers(self) -> dict[str, tuple[float, float]]:
        """Weight and bias as each worker that got to the end printed them."""
        found = {name: re.search(r"weight (\S+) +bias (\S+)", self.log(name)) for name in self.workers()}
        return {name: (float(match[1]), float(match[2])) for name, match in found.items() if match}

    def log(self, container: str, since: str = "") -> str:
        command = ["docker", "logs", *(["--since", since] if since else []), container]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.stdout


@pytest.fixture(scope="session")
def compose() -> list[str]:
    required = bool(os.environ.get("SSP_REDIS_COMPOSE"))
    if not answers("docker", "info"):
        (pytest.fail if required else pytest.skip)("no Docker engine answers")
    chosen = shlex.split(os.environ.get("SSP_REDIS_COMPOSE_COMMAND", ""))
    for command in [chosen] if chosen else [["docker", "compose"], ["docker-compose"]]:
        if answers(*command, "version"):
            break
    else:
        (pytest.fail if required else pytest.skip)("neither `docker compose` nor `docker-compose` is installed")
    Project(command)("build")
    return command


@pytest.fixture
def project(compose: list[str], request: pytest.FixtureRequest) -> Iterator[Project]:
    project = Project(compose, dict(getattr(request, "param", {})))
    try:
        yield project
    finally:
        print(project("logs", "--no-color"))  # shown where the test failed
        project("down", "--volumes", "--timeout", "2")


def test_comes_up_trains_ends_and_then_has_nothing_left_to_do(project: Project) -> None:
    project("up", "-d", SSP_REDIS_CLOCKS="300")
    assert list(project.finish().values()) == [0, 0, 0, 0]
    assert project.clocks() == {"0": 300, "1": 300, "2": 300, "3": 300}
    assert {one["why"] for one in project.status()["departed"]} == {"done"}

    again = time.time()
    project("up", "-d", SSP_REDIS_CLOCKS="300")
    assert list(project.finish().values()) == [0, 0, 0, 0]
    for container in project.workers():
        said = project.log(container, since=f"{again:.3f}")
        assert "nothing" in said and "SSP_REDIS_RUN" in said
    assert project.clocks() == {"0": 300, "1": 300, "2": 300, "3": 300}

    project("up", "-d", SSP_REDIS_CLOCKS="200", SSP_REDIS_RUN="2")
    assert list(project.finish().values()) == [0, 0, 0, 0]
    assert project.clocks() == {"0": 200, "1": 200, "2": 200, "3": 200}
    assert project.status()["run"] == "2"


@pytest.mark.parametrize("count", [2, 8])
def test_scales_without_an_edit(project: Project, count: int) -> None:
    project("up", "-d", "--scale", f"worker={count}", SSP_REDIS_CLOCKS="300")
    assert list(project.finish().values()) == [0] * count
    assert project.clocks() == {str(worker): 300 for worker in range(count)}


def test_a_killed_worker_does_not_stop_the_others_and_comes_back_under_its_own_id(project: Project) -> None:
    project("up", "-d")
    until(lambda: len(project.status()["members"]) == 4, 30, "four members")
    (victim, container), (survivor, _), *_ = project.workers().items()
    ids = {member["host"]: member["worker"] for member in project.status()["members"]}
    mine = ids[container["Config"]["Hostname"]]

    run("docker", "kill", victim)
    killed = time.monotonic()
    with project.watch(survivor) as looks:
        before = clocks(next(looks))
        goal = max(before.values()) + 20  # further than the staleness lets them go while it counts
        status = next(status for status in looks if all(clocks(status)[other] > goal for other in set(before) - {mine}))
    went_on = time.monotonic() - killed
    print(f"the others were seen past it {went_on:.1f} s after the kill")
    assert went_on < LEASE + 5
    assert mine not in [member["worker"] for member in status["members"]]
    assert project.workers()[victim]["State"]["ExitCode"] == 137

    run("docker", "start", victim)
    back = until(
        lambda: next((one for one in project.status()["members"] if one["worker"] == mine), None), 20, "it is back"
    )
    assert back["host"] == container["Config"]["Hostname"]
    assert back["clock"] >= before[mine]
    assert set(project.finish().values()) == {0}
    assert set(project.clocks()) == {"0", "1", "2", "3"}
    assert set(project.clocks().values()) == {2500}
    assert len(project.answers()) == 4
    for weight, bias in project.answers().values():
        assert (weight, bias) == (pytest.approx(2, abs=0.05), pytest.approx(10, abs=0.05))


def test_workers_killed_together_come_back_under_their_own_ids_in_any_order(project: Project) -> None:
    project("up", "-d", "--scale", "worker=3")
    members = until(lambda: len(found := project.status()["members"]) == 3 and found, 30, "three members")
    before = {member["worker"]: member["host"] for member in members}
    run("docker", "kill", before["0"], before["1"])
    until(lambda: len(project.status()["members"]) == 1, LEASE + 10, "both are given up")
    for host in (before["1"], before["0"]):
        run("docker", "start", host)
        until(lambda host=host: host in [one["host"] for one in project.status()["members"]], 20, "it is back")
    assert {member["worker"]: member["host"] for member in project.status()["members"]} == before


def test_a_crashed_worker_is_started_again_by_the_engine(project: Project) -> None:
    project("up", "-d", "--scale", "worker=2", SSP_REDIS_CLOCKS="1000")
    until(lambda: len(project.status()["members"]) == 2, 30, "two members")
    victim, container = next(iter(project.workers().items()))
    try:
        os.kill(container["State"]["Pid"], signal.SIGKILL)  # as the kernel does when memory runs out
    except (ProcessLookupError, PermissionError):
        pytest.skip("the engine's processes are not this user's to kill")
    until(lambda: project.workers()[victim]["RestartCount"] == 1, 20, "a restart")
    assert set(project.finish().values()) == {0}
    assert project.clocks() == {"0": 1000, "1": 1000}


def test_a_stopped_worker_leaves_at_once(project: Project) -> None:
    project("up", "-d", "--scale", "worker=3")
    until(lambda: len(project.status()["members"]) == 3, 30, "three members")
    container = next(iter(project.workers()))
    begun = time.monotonic()
    run("docker", "stop", container)
    assert time.monotonic() - begun < 5, "SIGTERM did not reach it"
    status = project.status()
    assert [one["why"] for one in status["departed"]] == ["left"]
    assert len(status["members"]) == 2


def test_runs_as_nobody_in_a_small_image(compose: list[str]) -> None:
    uid = run("docker", "run", "--rm", "--entrypoint", "id", IMAGE, "-u")
    assert int(uid) >= 1000
    assert run("docker", "run", "--rm", IMAGE, "--version").strip()
    base = os.environ.get("PYTHON_IMAGE", "python:3.12-slim")
    if answers("docker", "image", "inspect", base):
        size, under = (int(run("docker", "image", "inspect", "-f", "{{.Size}}", image)) for image in (IMAGE, base))
        print(f"{(size - under) / 1e6:.0f} MB over {base}")
        assert size - under < 100e6


def test_the_server_keeps_what_it_acknowledged(project: Project) -> None:
    project("up", "-d", "redis")

    def setting(name: str) -> str:
        return project("exec", "-T", "redis", "redis-cli", "config", "get", name).split()[-1]

    until(lambda: "PONG" in project("exec", "-T", "redis", "redis-cli", "ping"), 20, "an answer")
    assert setting("appendonly") == "yes"
    assert setting("appendfsync") == "everysec"
    assert setting("maxmemory-policy") == "noeviction"
    assert setting("dir") == "/data"
