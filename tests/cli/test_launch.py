"""A whole run on this machine, from the command line to the last line of output."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
from commands import Run

from ssp_redis import Job, join
from ssp_redis.tasks import task

SCRIPT = """
import sys
import numpy as np
import ssp_redis

with ssp_redis.join() as worker:
    table = worker.table("sum", np.zeros(3))
    for clock in worker.clocks(20):
        table.inc(np.full(3, float(sys.argv[2])))
        table.get()
    print("worker", worker.id, "says", sys.argv[1:])
"""

FAILING = """
class Failing:
    def setup(self, worker, clocks):
        self.worker, self.table = worker, worker.table("count", [0.0])

    def step(self, clock):
        self.table.inc([1.0])
        self.table.get()
        if self.worker.id == "1" and clock == 5:
            self.fail()

    def fail(self):
        raise ValueError("the data has a hole")
"""


@pytest.mark.parametrize("staleness", ["0", "3", "inf"])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_line_is_found_in_every_mode_by_default(ssp: Run, staleness: str, workers: int) -> None:
    done = ssp("launch", "-n", str(workers), "--staleness", staleness, "--json")
    assert done.err == ""
    assert done.json["task"] == "linreg"
    assert done.json["workers"] == workers
    assert done.json["staleness"] == (int(staleness) if staleness != "inf" else "inf")
    assert done.json["clocks"] == 2000
    assert done.json["total_clocks"] == 2000 * workers
    assert done.json["parameters"]["weight"] == pytest.approx(2, abs=0.05)
    assert done.json["parameters"]["bias"] == pytest.approx(10, abs=0.05)
    assert done.json["loss"] == pytest.approx(0.33**2, rel=0.05)
    assert done.json["clocks_per_second"] == pytest.approx(2000 * workers / done.json["seconds"], rel=0.01)
    assert [one["how"] for one in done.json["by_worker"]] == ["done"] * workers
    assert done.json["failed"] == []


def test_eight_workers_with_a_straggler_find_it_too(ssp: Run) -> None:
    done = ssp("launch", "-n", "8", "--staleness", "10", "--straggle", "0:3x,1:1ms@10%", "--clocks", "500", "--json")
    assert done.json["parameters"]["weight"] == pytest.approx(2, abs=0.05)
    assert done.json["parameters"]["bias"] == pytest.approx(10, abs=0.05)
    slow, *others = done.json["by_worker"]
    assert slow["wait_seconds"] < min(one["wait_seconds"] for one in others)


@pytest.mark.parametrize("staleness", ["0", "3", "inf"])
def test_digits_are_told_apart_in_every_mode(ssp: Run, staleness: str) -> None:
    pytest.importorskip("sklearn")
    done = ssp("launch", "softmax", "-n", "4", "-s", staleness, "--json")
    assert done.json["accuracy"] >= 0.95
    assert "parameters" not in done.json  # they are not small


def test_a_matrix_stands_by_itself(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import numpy as np, ssp_redis\n"
        "with ssp_redis.join() as worker:\n"
        "    worker.table('m', np.array([[1, -2.5], [30, 4]])), worker.table('v', np.array([1, 2]))\n"
        "    worker.tick()\n"
    )
    lines = ssp("launch", "-n", "1", "train.py").out.splitlines()
    assert lines[0].startswith("train.py: 1 clock in ")
    assert lines[1:4] == ["  v [1, 2]", "  m [[ 1. , -2.5],", "     [30. ,  4. ]]"]


def test_a_file_of_ones_own_is_trained_on(ssp: Run, tmp_path: Path) -> None:
    rows = [f"{x / 10:.1f},{y / 10:.1f},{'above' if y > x else 'below'}\n" for x in range(20) for y in range(20)]
    (tmp_path / "points.csv").write_text("x,y,where\n" + "".join(rows))
    done = ssp("launch", "softmax", "--data", "points.csv", "--label", "where", "-n", "2", "--json")
    assert done.json["accuracy"] > 0.9


def test_the_result_for_people_says_where_the_time_went(ssp: Run) -> None:
    done = ssp("launch", "-n", "2", "--clocks", "50")
    assert "100 clocks in" in done.out
    assert "weight" in done.out
    assert "bias" in done.out
    heading = next(line for line in done.out.splitlines() if "worker" in line).split()
    assert heading == ["worker", "clock", "compute", "wait", "push", "pull", "ended"]
    assert done.err == "", "no progress where there is no terminal"


def test_flags_before_and_after_the_task_and_in_the_environment_are_the_same(ssp: Run) -> None:
    for done in (
        ssp("launch", "-n", "2", "linreg", "--clocks", "30", "--seed", "7", "--json"),
        ssp("launch", "linreg", "--seed=7", "--json", "--clocks=30", "-n2"),
        ssp("launch", SSP_REDIS_TASK="linreg", SSP_REDIS_SEED="7", SSP_REDIS_JSON="1", SSP_REDIS_CLOCKS="30",
            SSP_REDIS_WORKERS="2"),
    ):  # fmt: skip
        assert (done.json["workers"], done.json["clocks"]) == (2, 30)


def test_a_script_takes_its_place_from_the_environment_and_its_arguments_as_they_are(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = ssp("launch", "-n", "2", "train.py", "--lr", "0.5", "--workers", "7", "-h")
    said = [line for line in done.out.splitlines() if "says" in line]
    assert sorted(said) == [
        f"[{number}] worker {number} says ['--lr', '0.5', '--workers', '7', '-h']" for number in (0, 1)
    ]
    assert "sum [20., 20., 20.]" in done.out


def test_flags_of_launch_after_the_script_are_the_scripts_and_it_says_so(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = ssp("launch", "-n", "2", "train.py", "--lr", "0.5", "-s=3", "--clocks", "9")
    assert done.err == "-s=3, --clocks after train.py: the script's, for launch's own come before it\n"
    assert "[0] worker 0 says ['--lr', '0.5', '-s=3', '--clocks', '9']" in done.out
    assert ssp("launch", "-n", "2", "-q", "train.py", "--lr", "0.5", "-s=3").err == ""


def test_a_script_that_joins_another_job_has_not_failed(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import ssp_redis\nwith ssp_redis.join(job='mine') as w:\n    w.tick()\n")
    done = ssp("launch", "-n", "2", "other.py")
    assert "there is no job other on the server" in done.err
    assert "the script tells join() another job or server" in done.err
    assert "2 clocks" in done.out


def test_json_leaves_standard_output_to_the_one_object(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = ssp("launch", "-n", "2", "--json", "train.py", "--lr", "0.5")
    assert done.json["task"] == "train.py"
    assert done.json["clocks"] == 20
    assert done.json["loss"] is None
    assert done.json["parameters"] == {"sum": [20.0, 20.0, 20.0]}
    assert "worker 0 says" in done.err


def test_a_script_that_fails_makes_the_launch_fail(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nsys.exit(3)\n")
    done = ssp("launch", "-n", "2", "train.py", code=1)
    assert ": ended with exit code 3" in done.err
    assert "of 2 workers failed" in done.err


def test_a_task_of_ones_own_that_fails_shows_where_and_the_others_go_on(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING)
    done = ssp("launch", "mine:Failing", "-n", "3", "--clocks", "30", "--straggle", "20ms", "--json", code=None)
    assert done.code == 1
    assert "worker 1 failed at clock 5; the others go on" in done.err
    assert "in fail" in done.err
    assert "ValueError: the data has a hole" in done.err
    assert "run_task" not in done.err, "our own frames say nothing to the user"
    assert {one["worker"]: one["clock"] for one in done.json["by_worker"]} == {"0": 30, "1": 5, "2": 30}
    assert [(one["worker"], one["why"]) for one in done.json["failed"]] == [("1", "ValueError: the data has a hole")]
    # Its five committed clocks stay, the open one is dropped.
    assert done.json["parameters"] == {"count": [65.0]}


def test_a_file_that_cannot_be_read_is_named_once_and_is_wrong_usage(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("1,2,0\n3,x,1\n")
    done = ssp("launch", "softmax", "--data", "bad.csv", "-n", "4", code=2)
    assert done.err.count("bad.csv, line 2, column 2: 'x' is not a finite number") == 1


def test_without_a_server_to_start_it_says_how_to_get_one(ssp: Run) -> None:
    done = ssp("launch", code=69, SSP_REDIS_SERVER="/no/such/server")
    assert "/no/such/server" in done.err


def test_a_server_that_does_not_answer_is_code_69(ssp: Run) -> None:
    done = ssp("launch", "--url", "unix:///no/such/socket", code=69)
    assert "/no/such/socket" in done.err


def test_on_a_server_of_ones_own_the_job_stays_and_is_done(ssp: Run, url: str, job: str) -> None:
    first = ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "20", "--json")
    assert first.json["job"] == job
    again = ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "20", "--json")
    assert "nothing was left to do" in again.err
    assert "--run NAME" in again.err
    assert f"ssp-redis delete --job {job}" in again.err
    assert again.json["total_clocks"] == 0
    assert again.json["parameters"] == first.json["parameters"]
    more = ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "30", "--json")
    assert more.json["total_clocks"] == 20
    anew = ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "20", "--run", "second", "--json")
    assert (anew.json["run"], anew.json["total_clocks"]) == ("second", 40)


def test_the_workers_of_an_idle_job_begin_together_and_may_be_another_number(
    ssp: Run, url: str, job: str, tmp_path: Path
) -> None:
    (tmp_path / "share.py").write_text(
        "import ssp_redis\n"
        "with ssp_redis.join() as worker:\n"
        "    begun = worker.clock\n"
        "    print(worker.id, begun, sum(1 for _ in worker.clocks(int(__import__('sys').argv[1]))))\n"
    )
    where = {"SSP_REDIS_URL": url, "SSP_REDIS_JOB": job}
    ssp("launch", "-n", "2", "share.py", "50", **where)
    again = ssp("launch", "-n", "3", "share.py", "90", **where)
    assert f"job {job} goes on at clock 50 of run 1; --run NAME begins another" in again.err
    assert sorted(again.out.splitlines()[:3]) == [f"[{worker}] {worker} 50 40" for worker in "012"]
    other = ssp("launch", "-n", "2", "--run", "other", "share.py", "10", **where)
    assert "goes on" not in other.err


def test_a_job_with_workers_at_work_is_not_taken_over(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker=0), Job(url, job) as view:
        done = ssp("launch", "--url", url, "--job", job, code=1)
        assert f"job {job} is running: worker 0" in done.err
        assert len(view.status().members) == 1


def test_a_stopped_job_ends_the_launch_without_failure(ssp: Run, url: str, job: str) -> None:
    ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "20")
    ssp("stop", "--url", url, "--job", job)
    done = ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "99999")
    assert "was stopped" in done.err
    assert f"ssp-redis stop --resume --job {job}" in done.err
    ssp("stop", "--resume", "--url", url, "--job", job)
    done = ssp("launch", "--url", url, "--job", job, "-n", "2", "--clocks", "21", "--json")
    assert {one["clock"] for one in done.json["by_worker"]} == {21}


def test_a_quorum_that_cannot_come_together_times_out(ssp: Run, url: str, job: str) -> None:
    done = ssp("worker", "--url", url, "--job", job, "-n", "2", "--timeout", "0.3", code=75)
    assert "1 of 2" in done.err


def test_a_result_that_cannot_be_judged_does_not_hide_the_rest(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        FAILING.replace("ValueError", "SystemError") + "\n    def result(self, parameters):\n        return 1 / 0\n"
    )
    done = ssp("launch", "mine:Failing", "-n", "1", "--clocks", "3", "--json", code=None)
    assert done.code == 1
    assert done.json["parameters"] == {"count": [3.0]}
    assert "the result could not be judged" in done.err
    assert "ZeroDivisionError" in done.err


def test_a_script_may_start_processes_of_its_own(ssp: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import multiprocessing, os, ssp_redis\n"
        "def square(x): return x * x, [name for name in os.environ if name.endswith('REPORT_FD')]\n"
        "if __name__ == '__main__':\n"
        "    with ssp_redis.join() as worker, multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print('squares', pool.map(square, [3]))\n"
    )
    assert "squares [(9, [])]" in ssp("launch", "-n", "1", "train.py").out


def test_the_example_that_tells_how_to_write_a_task_works(ssp: Run, tmp_path: Path) -> None:
    text = textwrap.dedent((inspect.getdoc(task) or "").partition("::\n")[2].partition("``ssp-redis launch")[0])
    (tmp_path / "mymodule.py").write_text(text)
    done = ssp("launch", "mymodule:Mean", "-n", "4", "--rate", "0.02", "--json")
    assert done.json["parameters"]["mean"][0] == pytest.approx(3, abs=1)
    help_text = ssp("launch", "mymodule:Mean", "--help").out
    assert "The mean of some numbers" in help_text
    assert "step size  [default: 0.01]" in help_text
