"""The fixtures of this folder's tests."""

from __future__ import annotations

from fixtures import join, no_environment_of_ours, together

__all__ = ["join", "no_environment_of_ours", "together"]
