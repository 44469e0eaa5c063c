"""Keras models, trained by ``fit``, on every backend that is there; each worker in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from remote import run_programs


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_models_are_fitted_together(
    backend: str, url: str, new_job: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("keras", backend):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    for name, value in {"KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}.items():
        monkeypatch.setenv(name, value)
    jobs = [new_job() for _ in range(4)]
    program = Path(__file__).with_name("keras_program.py")
    printed = run_programs(program, [[str(rank), url, *jobs] for rank in range(4)], 280)
    weights = {line for text in printed for line in text.splitlines() if line.startswith("weights")}
    assert len(weights) == 1, "all four ended with the same, to the bit"
