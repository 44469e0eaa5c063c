"""Work to hand to workers: the tasks that come along, and how to find one of your own by name.

A task is a small class; ``task.py`` says what it must have. ``linreg`` is the shortest complete example.
"""

from __future__ import annotations

from ssp_redis.tasks.find import BUILTIN, find_task
from ssp_redis.tasks.task import Option, Parameters, Task, option, options_of, summary_of

__all__ = ["BUILTIN", "Option", "Parameters", "Task", "find_task", "option", "options_of", "summary_of"]
