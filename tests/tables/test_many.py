"""Many tables, pushed together: however many parts that has, it goes out and comes back as one."""

from __future__ import annotations

import time

import numpy as np
import pytest

import ssp_redis
from ssp_redis import Job
from ssp_redis.connection import Endpoint, ReplyError, command


@pytest.mark.timeout(120)
def test_more_tables_than_the_kernel_takes_parts_are_one_tick(url: str, job: str) -> None:
    """Some of them are copied into their commands, some are sent from where they are, some stand in the tag."""
    with ssp_redis.join(url, job=job) as worker:
        tables = [worker.table(f"t{i}", np.zeros(1 + i % 2)) for i in range(1100)]
        tables += [worker.table(f"m{i}", np.zeros(700)) for i in range(3)]
        for clock in range(1, 4):
            for number, table in enumerate(tables):
                table.inc(np.full(table.shape, number))
            assert worker.tick(timeout=60) == clock
        with Job(url, job) as look:
            for number in (0, 1, 1098, 1099, 1100, 1102):
                assert (look.table(tables[number].name).get() == 3 * number).all()


@pytest.mark.parametrize("count", [1, 3, 10, 600])
def test_a_transaction_that_is_refused_says_so_at_once(url: str, job: str, count: int) -> None:
    """What comes then may be shorter than the usual reply, which must not be waited for."""
    wire = Endpoint(url).connect()
    sets = [command("SET", f"ssp:{{{job}}}:{i}", "v") for i in range(count)]
    begun = time.monotonic()
    with pytest.raises(ReplyError, match="wrong number of arguments"):
        wire.transact([*sets, command("SET", "k"), command("GET", "k")])
    assert time.monotonic() - begun < 2, "the connection's timeout is 5 s"
    assert wire.call("EXISTS", f"ssp:{{{job}}}:0") == 0
    wire.transact([*sets, command("DEL", *(f"ssp:{{{job}}}:{i}" for i in range(count)))])
    wire.close()


@pytest.mark.parametrize("count", [1, 4, 50])
def test_of_several_values_those_that_are_refused_are_told(url: str, job: str, count: int) -> None:
    """Each of them has a reply, which is taken, whatever it says."""
    wire = Endpoint(url).connect()
    key = f"ssp:{{{job}}}:key"
    good, bad = command("SET", key, "v"), command("SET", key, "v", "nonsense")
    for where in {0, count // 2, count - 1}:
        words = [good] * count
        words[where] = bad
        wire.send(b"".join(words))
        with pytest.raises(ReplyError, match="syntax error"):
            wire.read_done(count)
        wire.send(good * count)
        wire.read_done(count)
        assert wire.call("DEL", key) == 1
    wire.close()
