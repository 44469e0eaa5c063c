"""What is shipped works where the checkout is not: from the wheel, in a virtual environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "lua").rglob("*.lua"))

pytestmark = [
    pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="the tests do not stand in a checkout"),
    pytest.mark.timeout(300),
]

PROGRAM = """
import sys
from pathlib import Path

import numpy as np
import ssp_redis
from ssp_redis.server import EmbeddedServer

here = Path(ssp_redis.__file__).resolve()
assert here.is_relative_to(Path(sys.prefix).resolve()), here

with EmbeddedServer(sys.argv[1] if len(sys.argv) > 1 else None) as server:
    with ssp_redis.join(server.url, job="shipped", worker=0, workers=1, staleness=1) as worker:
        table = worker.table("w", np.zeros(3, np.float32))
        for clock in worker.clocks(5):
            table.inc(np.ones(3, np.float32))
        print(worker.clock, table.get().tolist())
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run it where nothing of the checkout is importable, and show what it said if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist and the wheel that was built from it, as a release would have them."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (wheel,) = distributions.glob("*.whl")
    return wheel


def test_the_wheel_ships_every_script_and_nothing_that_is_not_ours(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(name for name in names if name.endswith(".lua")) == [f"ssp_redis/{name}" for name in SCRIPTS]
    assert "ssp_redis/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"ssp_redis", wheel.name.split("-py3")[0] + ".dist-info"}
    assert {Path(name).suffix for name in names if name.startswith("ssp_redis/")} <= {".py", ".lua", ".md", ".typed"}


def test_the_sdist_ships_every_script(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names.issuperset(SCRIPTS)
    assert {"LICENSE", "README.md", "pyproject.toml", "ssp_redis/py.typed"} <= names


def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path, server_binary: str) -> None:
    """A new virtual environment, pip, and one script that joins, ticks and reads."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert run(python, "-W", "error", program, server_binary, cwd=tmp_path).strip() == "5 [5.0, 5.0, 5.0]"
    assert "ssp-redis" in run(tmp_path / "venv" / "bin" / "ssp-redis", "--version", cwd=tmp_path)
    assert "ssp-redis" in run(python, "-m", "ssp_redis", "--version", cwd=tmp_path)
