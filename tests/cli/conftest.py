"""The fixtures of this folder's tests, and the modules beside it: ``commands`` and ``fixtures``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from commands import ssp, start
from fixtures import no_environment_of_ours

__all__ = ["no_environment_of_ours", "ssp", "start"]
