"""The modules beside these tests, for the processes that they start, too, and an environment without our variables."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from fixtures import no_environment_of_ours

__all__ = ["no_environment_of_ours"]
