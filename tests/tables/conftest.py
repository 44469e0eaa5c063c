"""The fixtures of this folder's tests, and the modules beside it: ``fixtures``, ``proxy`` and ``remote``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fixtures import collected, join, no_environment_of_ours, proxy, remote, together

__all__ = ["collected", "join", "no_environment_of_ours", "proxy", "remote", "together"]
