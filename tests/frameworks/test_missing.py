"""A framework that is not installed is one clear error, and none is imported until it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from remote import environment

#: Adapter (and extra), and what it imports.
MODULES = {"torch": "torch", "sklearn": "sklearn", "jax": "jax", "keras": "keras", "tensorflow": "tensorflow"}


def run(source: str) -> str:
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("adapter", MODULES)
def test_what_is_missing_is_named_with_its_extra(adapter: str) -> None:
    printed = run(
        f"""
import sys
sys.modules[{MODULES[adapter]!r}] = None  # Python's own way to say that there is none
try:
    import ssp_redis.frameworks.{adapter}
except ImportError as error:
    print(error)
"""
    )
    assert printed.endswith(f"is not installed: pip install 'ssp-redis[{adapter}]'")


def test_none_is_imported_before_it_is_asked_for() -> None:
    source = "import sys, ssp_redis, ssp_redis.frameworks\n"
    assert run(source + f"print([module for module in {list(MODULES.values())} if module in sys.modules])") == "[]"
