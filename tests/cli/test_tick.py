"""The clock for a shell script."""

from __future__ import annotations

import subprocess
import sys
import time

from commands import Run, Start, environment

from ssp_redis import Job, join


def clocks(url: str, job: str) -> dict[str, int]:
    with Job(url, job) as view:
        return {member.worker: member.clock for member in view.status().members}


def test_a_tick_states_the_clock_and_may_be_repeated(ssp: Run, url: str, job: str) -> None:
    words = ("tick", "--url", url, "--job", job, "--id", "0", "--lease", "50")
    for clock in ("0", "1", "1", "2", "2"):
        ssp(*words, "--clock", clock)
        assert clocks(url, job) == {"0": int(clock)}, "it is still a member, at the clock stated"
    done = ssp(*words, "--clock", "1")
    assert "at clock 2, beyond 1 already" in done.err
    assert clocks(url, job) == {"0": 2}


def test_several_clocks_can_be_stated_at_once(ssp: Run, url: str, job: str) -> None:
    done = ssp("tick", "--url", url, "--job", job, "--id", "0", "--clock", "5", "--staleness", "2", "--json")
    assert {name: done.json[name] for name in ("job", "worker", "clock", "staleness")} == {
        "job": job,
        "worker": "0",
        "clock": 5,
        "staleness": 2,
    }


def test_leave_says_that_the_worker_is_done(ssp: Run, url: str, job: str) -> None:
    ssp("tick", "--url", url, "--job", job, "--id", "0", "--clock", "3", "--leave")
    with Job(url, job) as view:
        assert [(one.worker, one.clock, one.why) for one in view.status().departed] == [("0", 3, "done")]


def test_it_blocks_until_admitted_and_times_out_with_75_without_harm(
    ssp: Run, start: Start, url: str, job: str
) -> None:
    with join(url, job=job, worker="slow", staleness=1, lease=50) as slow:
        words = ("tick", "--url", url, "--job", job, "--id", "fast")
        ssp(*words, "--clock", "1")
        done = ssp(*words, "--clock", "2", "--timeout", "0.3", code=75)
        assert "worker slow at clock 0" in done.err
        waiting = start(*words, "--clock", "2")
        time.sleep(0.7)
        assert waiting.poll() is None
        slow.tick()
        assert waiting.wait(5) == 0
        assert clocks(url, job) == {"slow": 1, "fast": 2}


def test_two_shell_loops_stay_within_the_bound(start: Start, url: str, job: str) -> None:
    loop = (
        f'for clock in $(seq 0 5); do "{sys.executable}" -m ssp_redis tick --url "{url}" --job "{job}" --id "$1" -n 2 '
        "-s 1 --lease 60 --clock $clock || exit; sleep $2; done; "
        f'"{sys.executable}" -m ssp_redis tick --url "{url}" --job "{job}" --id "$1" --clock 5 --leave'
    )
    loops = [
        subprocess.Popen(["sh", "-ec", loop, "sh", name, pause], env=environment())
        for name, pause in (("fast", "0"), ("slow", "0.3"))
    ]
    leads = []
    while any(process.poll() is None for process in loops):
        with Job(url, job) as view:
            if view.exists():
                leads += [member.lead for member in view.status().members]
        time.sleep(0.02)
    assert [process.returncode for process in loops] == [0, 0]
    # One more than the bound: a worker that waits has completed the clock that it may not leave yet.
    assert max(leads) <= 2


def test_a_server_that_is_away_is_waited_for_no_longer_than_asked(ssp: Run) -> None:
    begun = time.monotonic()
    ssp("tick", "--url", "unix:///no/such", "--job", "j", "--id", "0", "--clock", "1", "--timeout", "1", code=69)
    assert time.monotonic() - begun < 10
