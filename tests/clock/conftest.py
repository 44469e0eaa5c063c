"""The fixtures of this folder's tests."""

from __future__ import annotations

from fixtures import collected, join, no_environment_of_ours, proxy, remote, together

__all__ = ["collected", "join", "no_environment_of_ours", "proxy", "remote", "together"]
