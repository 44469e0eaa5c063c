"""Processes that work together: they end, whatever becomes of one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import acts
import pytest

from ssp_redis.bench.crew import BenchFailed, Inexact, together


def test_each_knows_its_place_and_results_come_in_that_order() -> None:
    assert together(acts.place, 3, 30.0, 10) == [(0, 3, 10), (1, 3, 11), (2, 3, 12)]


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("wrong", Inexact, "process 1 of 3: 3 is not 4"),
        ("refused", BenchFailed, "process 1 of 3: no such thing"),
        ("bug", BenchFailed, "nobody caught this"),
        ("dies", BenchFailed, "process 1 of 3 died with exit code 9"),
    ],
)
def test_the_first_that_fails_ends_all_and_is_named(how: str, kind: type[BenchFailed], says: str) -> None:
    begun = time.monotonic()
    with pytest.raises(kind, match=says):
        together(acts.one_fails, 3, 60.0, how)
    assert time.monotonic() - begun < 40


def test_who_does_not_answer_in_time_is_named() -> None:
    with pytest.raises(BenchFailed, match="no answer within 3 s from process 0, 1 of 2"):
        together(acts.sleep, 2, 3.0, 600.0)


def test_who_waits_in_vain_for_the_others_says_so() -> None:
    with pytest.raises(BenchFailed, match=r"did not come|no answer within"):
        together(acts.one_fails, 2, 3.0, "alone")


def test_they_end_with_the_process_that_started_them() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "import acts, multiprocessing, threading, time\n"
        "from ssp_redis.bench.crew import together\n"
        "def tell():\n"
        "    while len(multiprocessing.active_children()) < 2: time.sleep(0.05)\n"
        "    time.sleep(1.0)\n"
        "    print(*[child.pid for child in multiprocessing.active_children()], flush=True)\n"
        "if __name__ == '__main__':\n"
        "    threading.Thread(target=tell).start()\n"
        "    together(acts.sleep, 2, 60.0, 600.0)\n"
    )
    path = f"{Path(__file__).parent}:{Path(__file__).parents[2]}"
    parent = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        parent.kill()
        deadline = time.monotonic() + 20
        while any(_alive(pid) for pid in children):
            assert time.monotonic() < deadline, "processes were left behind"
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.communicate()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform == "linux":  # a zombie that its new parent has not noticed yet is gone
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    return True
