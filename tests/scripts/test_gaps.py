"""A tick that is answered as done, and stands nowhere in the log: what the explorer found of that.

It takes a server that fell back and a tick that it took in between. A tick below the stored clock is taken for a
replay, whoever's tick it was that brought the clock there. The first is closed by a rule of the client, the second is
open.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from explore.engine import shipped

from .stage import Stage


@pytest.fixture
def stage(client: redis.Redis, job: str) -> Iterator[Stage]:
    stage = Stage(client, job, shipped())
    yield stage
    stage.close()


def test_a_restored_worker_does_not_take_its_predecessors_tick_for_its_own(stage: Stage) -> None:
    """Its join is lost in a failover, and the process that it had superseded ticks before it has synced."""
    old = stage.join(0, workers=1)
    fall_back = stage.backup()
    new = stage.join(0)
    fall_back()
    old.tick()
    answer = new.sync()
    assert answer.epoch == 2
    new.clock = answer.clock  # the client's rule: where the store's clock is higher, adopt it and tick from there
    new.tick()
    assert new.tag in stage.log()


@pytest.mark.xfail(strict=True, reason="the clock was kept and the entry was not: saying it again is a no-op")
def test_a_tick_whose_answer_and_whose_entry_were_lost_is_counted_when_it_is_said_again(stage: Stage) -> None:
    """Only the tail of the log is lost, not the clocks: no failover does that, a damaged file may."""
    one, two = stage.team(2, staleness=1)
    two.tick()
    one.sync()
    seen = one.position, one.tag
    one.tick()
    one.clock, (one.position, one.tag) = 0, seen  # the answer was lost
    stage.client.rpop(stage.key("log"), 2)
    assert one.sync().epoch == 2
    one.tick()
    assert one.tag in stage.log()
