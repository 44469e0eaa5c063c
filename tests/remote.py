"""Workers in processes of their own, told line by line what to do; and waiting for conditions.

The parent sends Python source, the child runs it in one namespace and answers with the value of the last expression, or
with the exception. Run as a program, this file is the child.
"""

from __future__ import annotations

import ast
import contextlib
import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import nursery

_ROOT = Path(__file__).parents[1]


def eventually(condition: Callable[[], Any], what: str = "", seconds: float = 10.0) -> Any:
    """Wait until ``condition()`` is true and return what it gave; fail when the time is up."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.002)
    return value


def environment(**more: str) -> dict[str, str]:
    """This environment without what ``join`` would read from it."""
    foreign = ("SSP_REDIS_", "REDIS_URL", "RANK", "WORLD_SIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    kept["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    # several children share few processors
    kept |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return kept | more


def free_ports(count: int) -> int:
    """The first of so many consecutive ports on which nobody listens."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first: int = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


class RemoteError(Exception):
    """What a child raised: ``name`` of the exception, its text and its attributes."""

    def __init__(self, name: str, text: str, data: dict[str, Any]) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text
        self.data = data


class Remote:
    """A child process. Its namespace has ``ssp_redis``, ``np`` and what earlier sources left there."""

    def __init__(self, **variables: str) -> None:
        questions, asking = os.pipe()
        answering, answers = os.pipe()
        self._in, self._out = os.fdopen(asking, "wb"), os.fdopen(answering, "rb")
        try:
            self.process = nursery.start([__file__], environment(**variables), (questions, answers, 2))
        finally:
            os.close(questions)
            os.close(answers)
        self.pid = self.process.pid

    def start(self, source: str, **values: Any) -> None:
        """Have the child run ``source`` with ``values`` as variables; ``result`` waits for it."""
        pickle.dump((source, values), self._in)
        self._in.flush()

    def ended(self, timeout: float = 0.0) -> bool:
        """Is there an answer to take?"""
        return bool(select.select([self._out], [], [], timeout)[0])

    def result(self, timeout: float = 30.0) -> Any:
        """The answer to the last ``start``."""
        assert self.ended(timeout), f"no answer within {timeout} s"
        try:
            ok, value = pickle.load(self._out)
        except EOFError:
            raise AssertionError(f"the child ended with {self.process.wait()}") from None
        if ok:
            return value
        raise RemoteError(*value)

    def do(self, source: str, timeout: float = 30.0, **values: Any) -> Any:
        """``start`` and ``result``."""
        self.start(source, **values)
        return self.result(timeout)

    def join(self, url: str, job: str, timeout: float = 30.0, **settings: Any) -> None:
        """Make ``worker`` in the child."""
        self.do("worker = ssp_redis.join(url, job=job, **settings)", timeout, url=url, job=job, settings=settings)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        """End the child, frozen or not."""
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):
                pipe.close()
        self.kill()

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_programs(program: Path, arguments: list[list[str]], timeout: float = 60.0) -> list[str]:
    """Run a program once for each list of arguments, all at the same time; what they print, if all end well."""
    ended = run_to_end([[str(program), *words] for words in arguments], environment(), timeout)
    for code, _, errors in ended:
        assert code == 0, errors
    return [out for _, out, _ in ended]


def run_to_end(
    commands: list[list[str]], variables: dict[str, str], timeout: float, folder: str | Path = "."
) -> list[tuple[int, str, str]]:
    """Run ``python WORDS`` for each of these, all at the same time: exit codes, and what they print on both streams."""
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull))
        children, files = [], []
        deadline = time.monotonic() + timeout
        try:
            for words in commands:
                out, errors = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
                files.append((out, errors))
                streams = (nothing.fileno(), out.fileno(), errors.fileno())
                children.append(nursery.start(words, variables, streams, str(folder)))
            codes = [child.wait(max(0.1, deadline - time.monotonic())) for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
        for file in (file for pair in files for file in pair):
            file.seek(0)
        return [(code, out.read(), errors.read()) for code, (out, errors) in zip(codes, files, strict=True)]


def _serve() -> None:
    import numpy as np

    import ssp_redis

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the sources print is not an answer
    names: dict[str, Any] = {"ssp_redis": ssp_redis, "np": np, "time": time, "os": os, "signal": signal}
    while True:
        try:
            source, values = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        names.update(values)
        try:
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<test>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<test>", "eval"), names) if last else None
            answer = pickle.dumps((True, value))
        except BaseException as error:
            data = {key: value for key, value in vars(error).items() if not key.startswith("_")}
            answer = pickle.dumps((False, (type(error).__name__, str(error), data)))
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    _serve()
