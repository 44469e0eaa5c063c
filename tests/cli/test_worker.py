"""One worker, on a task or a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from commands import Run

from ssp_redis import Job, join


def test_a_worker_alone_trains_and_says_so(ssp: Run, url: str, job: str) -> None:
    done = ssp("worker", "--url", url, "--job", job, "--clocks", "1000")
    assert f"linreg, worker 0 of job {job}: 1,000 clocks in" in done.out
    assert "weight 1.9" in done.out or "weight 2.0" in done.out
    assert done.err == ""


def test_without_an_id_the_lowest_free_one_is_claimed(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker=0, staleness=None):
        done = ssp("worker", "--url", url, "--job", job, "--clocks", "20", "--json")
    assert done.json["worker"] == "1"
    assert done.json["staleness"] == "inf"
    assert done.json["clocks"] == done.json["total_clocks"] == 20


def test_a_worker_that_was_done_says_that_nothing_is_left_and_how_to_run_again(ssp: Run, url: str, job: str) -> None:
    for _ in range(2):
        done = ssp("worker", "--url", url, "--job", job, "--id", "a", "--clocks", "20")
    assert "worker a:" in done.err
    assert "nothing was left to do" in done.err
    assert "SSP_REDIS_RUN=NAME" in done.err
    assert done.out == ""
    with Job(url, job) as view:
        assert [(one.worker, one.clock, one.why) for one in view.status().departed] == [("a", 20, "done")]


def test_everything_can_come_from_the_environment(ssp: Run, url: str, job: str) -> None:
    done = ssp(
        "worker",
        REDIS_URL=url,
        SSP_REDIS_JOB=job,
        SSP_REDIS_ID="w",
        SSP_REDIS_CLOCKS="20",
        SSP_REDIS_STALENESS="2",
        SSP_REDIS_JSON="true",
    )
    assert (done.json["worker"], done.json["staleness"], done.json["clocks"]) == ("w", 2, 20)


def test_a_flag_beats_the_environment(ssp: Run, url: str, job: str) -> None:
    done = ssp("worker", "--url", url, "--job", job, "--id", "mine", "-c", "5", "--json", SSP_REDIS_ID="theirs")
    assert done.json["worker"] == "mine"


def test_a_restarted_worker_goes_on_at_its_clock(ssp: Run, url: str, job: str) -> None:
    ssp("worker", "--url", url, "--job", job, "--id", "0", "--clocks", "20")
    done = ssp("worker", "--url", url, "--job", job, "--id", "0", "--clocks", "50", "--json")
    assert done.json["total_clocks"] == 30


def test_another_value_than_the_jobs_is_refused_with_both_named(ssp: Run, url: str, job: str) -> None:
    with join(url, job=job, worker=0, staleness=4):
        done = ssp("worker", "--url", url, "--job", job, "--staleness", "5", code=1)
    assert "4" in done.err
    assert "5" in done.err
    assert "staleness" in done.err


def test_a_script_finds_its_place_its_arguments_and_its_neighbours(
    ssp: Run, url: str, job: str, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "helper.py").write_text("factor = 2.0\n")
    (folder / "train.py").write_text(
        "import os, sys, helper, ssp_redis\n"
        "with ssp_redis.join() as worker:\n"
        "    table = worker.table('sum', [0.0])\n"
        "    for clock in worker.clocks(int(os.environ['SSP_REDIS_CLOCKS'])):\n"
        "        table.inc([helper.factor])\n"
        "print(__name__, sys.argv, worker.id)\n"
    )
    done = ssp(
        *("worker", "--url", url, "--job", job, "--id", "3", "-s", "inf", "--clocks", "4"),
        *("code/train.py", "--lr", "0.1", "--id", "5"),
    )
    assert "__main__ ['code/train.py', '--lr', '0.1', '--id', '5'] 3" in done.out
    assert "train.py, worker 3" in done.out
    assert "4 clocks in" in done.out
    assert "sum [8.]" in done.out


def test_the_exit_code_and_traceback_of_a_script_are_its_own(ssp: Run, url: str, job: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("import sys\nsys.exit(7)\n")
    ssp("worker", "--url", url, "--job", job, "code.py", code=7)
    (tmp_path / "error.py").write_text("def inner():\n    1 / 0\n\ninner()\n")
    done = ssp("worker", "--url", url, "--job", job, "error.py", code=None)
    assert done.code == 1
    assert done.err.splitlines()[1].strip().startswith('File "error.py", line 4')
    assert "ZeroDivisionError" in done.err


def test_what_a_script_does_wrong_is_told_with_its_line(ssp: Run, url: str, job: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import ssp_redis\nwith ssp_redis.join() as worker:\n    worker.table('w', [0.0])\n    worker.table('a b')\n"
    )
    done = ssp("worker", "--url", url, "--job", job, "wrong.py", code=2)
    assert "wrong.py:4: table 'a b' is not a name" in done.err


def test_a_script_that_never_joined_was_no_worker(ssp: Run, url: str, job: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('plain')\n")
    done = ssp("worker", "--url", url, "--job", job, "plain.py")
    assert "plain" in done.out
    assert "plain.py ended and has not called ssp_redis.join(): it was no worker" in done.err


def test_a_job_that_is_stopped_ends_its_worker_at_the_end_of_a_clock(ssp: Run, url: str, job: str) -> None:
    def stop() -> None:
        with Job(url, job) as view:
            while not (view.exists() and view.status().min_clock > 10):
                pass
            view.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    done = ssp("worker", "--url", url, "--job", job, "--clocks", "1000000", "--straggle", "1ms")
    stopper.join()
    assert "was stopped before its end" in done.err
    with Job(url, job) as view:
        assert [one.why for one in view.status().departed] == ["left"]


def test_parameters_that_cannot_be_told_apart_from_noise_are_still_numbers(ssp: Run, url: str, job: str) -> None:
    done = ssp("worker", "--url", url, "--job", job, "--clocks", "1", "--json")
    assert set(done.json["parameters"]) == {"weight", "bias"}


def test_a_script_gets_the_lease_and_the_timeout_unless_it_says_otherwise(
    ssp: Run, url: str, new_job: Callable[[], str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, ssp_redis\n"
        "words = {'lease': float(sys.argv[1])} if sys.argv[1:] else {'lease': None}\n"
        "with ssp_redis.join(**words) as worker:\n"
        "    print('lease', ssp_redis.Job(os.environ['SSP_REDIS_URL'], worker.job).status().lease)\n"
    )
    words = ("worker", "--url", url, "--job")
    assert "lease 50.0" in ssp(*words, new_job(), "--lease", "50", "train.py").out
    assert "lease 50.0" in ssp(*words, new_job(), "train.py", SSP_REDIS_LEASE="50").out
    assert "lease 60.0" in ssp(*words, new_job(), "--lease", "50", "train.py", "60").out
    done = ssp(*words, new_job(), "-n", "2", "--timeout", "0.3", "train.py", code=75)
    assert "1 of 2" in done.err
