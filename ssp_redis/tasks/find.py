"""From what the user typed to a task class: a name that comes along, ``module:Class``, or ``file.py:Class``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from ssp_redis.errors import UsageError
from ssp_redis.tasks.task import Task

#: Tasks that come along: name -> where it is. Imported when asked for.
BUILTIN = {
    "linreg": "ssp_redis.tasks.linreg:LinReg",
    "softmax": "ssp_redis.tasks.softmax:Softmax",
}


def find_task(name: str) -> type[Task]:
    """The task class called ``name``.

    The working directory is searched first, as ``python -m`` does. Raises :class:`UsageError`; what goes wrong *inside*
    the user's module is raised as it is.
    """
    module_name, colon, class_name = BUILTIN.get(name, name).partition(":")
    if not colon or not module_name or not class_name:
        known = ", ".join(BUILTIN)
        raise UsageError(f"no task {name!r}: name one of {known}, a class as module:Class, or a script as file.py")
    module = _import(module_name)
    task = getattr(module, class_name, None)
    if not isinstance(task, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and hasattr(value, "step")]
        hint = f"; it has {', '.join(classes)}" if classes else ""
        raise UsageError(f"no class {class_name!r} in {module_name}{hint}")
    missing = [method for method in ("setup", "step") if not callable(getattr(task, method, None))]
    if missing:
        raise UsageError(f"{name} is not a task: it has no method {' and no method '.join(missing)}")
    if issubclass(task, Task):
        return task
    # A class of its own gets from Task what it leaves out.
    return type(task.__name__, (task, Task), {"__doc__": task.__doc__, "__module__": task.__module__})


def _import(name: str) -> Any:
    if name.endswith(".py"):
        return _import_file(name)
    if not all(word.isidentifier() for word in name.split(".")):
        raise UsageError(f"no module {name!r}: name it as in an import, package.module, or as a file, FILE.py:Class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only when it is this module (or its package) that is missing, not one that it imports.
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"no module {name!r} here ({os.getcwd()}) or among the installed ones") from None
        raise


def _import_file(path: str) -> Any:
    if not os.path.isfile(path):
        raise UsageError(f"no file {path!r}")
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module of a class by its name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
