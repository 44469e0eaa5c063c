"""The fixtures of this folder's tests, and the modules beside them: ``markers`` …"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from commands import ssp
from fixtures import join, no_environment_of_ours, remote, together

__all__ = ["join", "no_environment_of_ours", "remote", "ssp", "together"]
