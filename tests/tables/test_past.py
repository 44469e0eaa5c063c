"""What the tags tell of earlier prefixes of the log: compared with clocks counted forwards."""

from __future__ import annotations

import random

import pytest

from ssp_redis.store.log import Tag
from ssp_redis.store.past import Past, backwards

ME = "1"


def history(seed: int, members: int, length: int) -> tuple[list[Tag], list[Past]]:
    """Tags of members that tick in any order and by steps of their own, and where they stood after each."""
    draw = random.Random(seed)
    clocks = {str(worker): draw.randrange(3) for worker in range(members)}
    steps = {worker: draw.randrange(1, 4) for worker in clocks}
    tags, stood = [], []
    for _ in range(length):
        worker = draw.choice(sorted(clocks))
        clocks[worker] += steps[worker]
        tags.append(Tag.parse(f"t:{worker}:{100 + int(worker)}:{clocks[worker]}:0:0.1"))
        stood.append(Past(min((clock for other, clock in clocks.items() if other != ME), default=None), clocks[ME]))
    return tags, stood


@pytest.mark.parametrize("members", [2, 3, 8])
@pytest.mark.parametrize("seed", range(20))
def test_pasts_are_what_they_were(seed: int, members: int) -> None:
    tags, stood = history(seed, members, 60)
    found = backwards(tags, stood[-1], ME)
    assert found == stood[-2 : -2 - len(found) : -1]
    # it ends where somebody's clock before its first tag would have to be known
    first = {tag.worker: i for i, tag in reversed(list(enumerate(tags)))}
    assert len(found) == len(tags) - 1 - max(first.values())


def test_it_ends_where_somebody_came_or_went() -> None:
    tags, stood = history(1, 3, 60)
    clock = max(tag.clock for tag in tags[:40] if tag.worker == "2")
    for kind in "jlr":
        changed = [*tags[:40], Tag.parse(f"{kind}:2:102:{clock}:0:"), *tags[40:]]
        assert backwards(changed, stood[-1], ME) == stood[-2:38:-1]


def test_without_others_nobody_is_waited_for() -> None:
    tags = [Tag.parse(f"t:{ME}:101:{clock}:0:0.1") for clock in range(5)]
    found = backwards(tags, Past(None, 4), ME)
    assert found == [Past(None, clock) for clock in (3, 2, 1, 0)]
    assert all(past.shows(1000) for past in found)
