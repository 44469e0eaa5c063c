"""Above staleness 0 a reader takes others' bases where they suffice: fewer bytes, and all that the bound asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fixtures import background

from ssp_redis import Worker

Join = Callable[..., Worker]
#: 4 MiB: a share for each of four workers.
SHAPE = (64, 16384)


def test_a_base_alone_is_taken_where_it_is_enough(join: Join) -> None:
    joining = [background(join, number, workers=4, staleness=3) for number in range(4)]
    workers = [future.result(30) for future in joining]
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    assert tables[0]._view.layout.shares == 4

    def push(number: int) -> None:
        tables[number].inc(np.full(SHAPE, 10.0**number, np.float32))
        workers[number].tick()

    for table in tables:
        assert (table.get() == 0).all()
    for number in (0, 1, 2, 3, 0, 1, 2, 3):
        push(number)
    for number in range(1, 4):
        assert (tables[number].get() == 2222).all()  # sums its share, and publishes it
    for number in range(1, 4):
        push(number)
    known = workers[0].stats()["bytes_in"]
    value = tables[0].get()
    rows = SHAPE[0] // 4
    assert (value[:rows] == 3332).all()  # its own share is summed to the end: 9 deltas
    assert (value[rows:] == 2222).all()  # of others' the base is enough, and not brought forward by 3 deltas each
    assert workers[0].stats()["bytes_in"] - known < (9 / 4 + 3 / 4 + 0.05) * 4 * value.size
    push(0)
    for worker, table in zip(workers, tables, strict=True):
        worker.barrier()
        assert (table.get() == 3333).all()


def test_own_deltas_are_in_every_part_whatever_its_version(join: Join) -> None:
    """The parts of a view stand at different versions; each own delta is in each of them exactly once."""
    seen_uneven = []

    def run(number: int) -> list[int]:
        worker = join(number, workers=4, staleness=2)
        table = worker.table("w", np.zeros(SHAPE, np.float32))
        draw = np.random.default_rng(number)
        uneven = 0
        for clock in worker.clocks(40):
            value = table.get()
            uneven += len(set(table._view.versions)) > 1
            own = value[:, number]
            assert (own == clock).all(), (number, clock, own)
            others = np.delete(value[:, :4], number, axis=1)
            assert others.min() >= clock - 2
            rows = draw.choice(SHAPE[0], 7, replace=False)
            assert np.array_equal(table.get(rows=rows), value[rows])
            delta = np.zeros(SHAPE, np.float32)
            delta[:, number] = 1
            table.inc(delta)
            if draw.random() < 0.3:  # a read with something open
                assert (table.get()[:, number] == clock + 1).all()
        worker.tick()
        worker.barrier()
        for _ in range(4):
            worker.tick()
        assert (table.get()[:, :4] == 40).all()
        return [uneven]

    for future in [background(run, number) for number in range(4)]:
        seen_uneven += future.result(100)
    assert sum(seen_uneven) > 10


def test_after_a_barrier_a_read_holds_all_that_came_before_it(join: Join) -> None:
    joining = [background(join, number, workers=3, staleness=5) for number in range(3)]
    workers = [future.result(30) for future in joining]
    dense = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    tiny = [worker.table("t", np.zeros(2)) for worker in workers]
    rowed = [worker.sparse_table("s", (100, 2)) for worker in workers]
    for clock in range(1, 4):
        for i, worker in enumerate(workers):
            if clock == 2:
                assert dense[i].get().shape == SHAPE and tiny[i].get().shape == (2,) and rowed[i].get(rows=[5]).size
            dense[i].inc(np.ones(SHAPE, np.float32))
            tiny[i].inc(np.ones(2))
            rowed[i].inc(np.ones((1, 2)), rows=[5])
            worker.tick()
    for i, worker in enumerate(workers):
        worker.barrier()
        assert (dense[i].get() == 9).all() and (tiny[i].get() == 9).all() and (rowed[i].get(rows=[5]) == 9).all()
