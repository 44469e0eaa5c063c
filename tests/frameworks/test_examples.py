"""The examples run as their first lines say, on small settings, and learn."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from remote import environment, free_ports

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="the tests do not stand in a checkout")


def launched(server: str, example: str, *arguments: object, workers: int = 2, staleness: str = "3") -> list[float]:
    """The first number that each worker prints after its name."""
    command = [sys.executable, "-m", "ssp_redis", "launch", "-n", workers, "--staleness", staleness]
    done = subprocess.run(
        [str(word) for word in [*command, EXAMPLES / example, *arguments]],
        env=environment(SSP_REDIS_SERVER=server),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"worker \w+: [a-z ]*([0-9.]+)", done.stdout + done.stderr)
    assert len(found) == workers, done.stdout + done.stderr
    return [float(number) for number in found]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("example", "needs", "least"),
    [
        ("digits_torch.py", ["torch"], 0.75),
        ("digits_sklearn.py", [], 0.75),
        ("digits_jax.py", ["jax", "optax"], 0.75),
        ("digits_keras.py", ["keras", "jax"], 0.6),
    ],
)
def test_digits(
    server_binary: str, example: str, needs: list[str], least: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ["sklearn", *needs]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert min(launched(server_binary, example, "--epochs", 2 if "keras" in example else 6)) > least


@pytest.mark.timeout(300)
def test_the_regression_beside_a_parameter_server(server_binary: str) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed")
    small = ["--steps", 600, "--lr", 0.02, "--port", free_ports(4)]
    assert max(launched(server_binary, "linreg_tensorflow.py", *small, workers=3)) < 0.5, "both begin at 0"


def test_the_clock_alone_keeps_five_processes_within_three_steps(server_binary: str, tmp_path: Path) -> None:
    leads = launched(server_binary, "clock_only.py", tmp_path, "--steps", 60, "--pause", 0.003, workers=5)
    assert 1 <= max(leads) <= 3


def test_matrix_factorization(server_binary: str) -> None:
    small = ["--users", 200, "--items", 50, "--ratings", 10_000, "--epochs", 8, "--batch", 128]
    assert max(launched(server_binary, "matrix_factorization.py", *small)) < 0.4, "the ratings' deviation is 2"


@pytest.mark.parametrize("staleness", ["0", "5", "inf"])
def test_evolution(server_binary: str, staleness: str) -> None:
    held = launched(server_binary, "evolution.py", "--steps", 40, "--longest", 200, staleness=staleness)
    assert min(held) > 100, "a policy of zeros holds it for about 10"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_names_the_extras_that_it_needs(path: Path) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    extras = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.search(r"Needs ssp-redis\[([\w,]+)\]", text := path.read_text())
    installed = [need for extra in (named[1].split(",") if named else []) for need in extras[extra]]
    has = {re.split("[>=;]", need)[0].replace("scikit-learn", "sklearn") for need in installed} | {"numpy", "ssp_redis"}
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    used = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    used |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in used} - sys.stdlib_module_names <= has
