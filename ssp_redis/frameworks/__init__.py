"""One small module for each framework, which says how its arrays are read and written; :class:`Replica` does the rest.

None is imported until it is asked for, as ``ssp_redis.frameworks.torch`` say.
"""

from __future__ import annotations

from ssp_redis.errors import SSPError


class MissingFramework(SSPError, ImportError):
    """The framework that an adapter is for is not installed; the message says how to."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed: pip install 'ssp-redis[{extra}]'")
        self.module = module
        self.extra = extra
