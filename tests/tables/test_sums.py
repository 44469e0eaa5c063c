"""With many members at staleness 0 one of them sums a small table, and says the sum to the others."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import redis
from fixtures import background, in_database
from proxy import Proxy
from remote import eventually

from ssp_redis import Job, Table, Worker
from ssp_redis.keys import JobKeys, StoreKeys
from ssp_redis.store.blob import sum_header

Together = Callable[..., list[Worker]]
MEMBERS = 6
SHAPE = (100, 40)


def numbers(worker: int, clock: int) -> np.ndarray:
    """Of very different sizes: another order of adding shows."""
    return (np.random.default_rng([worker, clock]).standard_normal(SHAPE) * 10.0 ** (worker % 3)).astype(np.float32)


def keys_of(worker: Worker) -> StoreKeys:
    return StoreKeys(JobKeys(worker.job).prefix, worker._clock.caller.run)


def train(worker: Worker, table: Table, clocks: int) -> list[bytes]:
    reads = []
    for clock in range(worker.clock, worker.clock + clocks):
        reads.append(table.get().tobytes())
        table.inc(numbers(int(worker.id), clock))
        worker.tick(30)
    return reads


def all_train(workers: list[Worker], clocks: int) -> list[list[bytes]]:
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    runs = [background(train, worker, table, clocks) for worker, table in zip(workers, tables, strict=True)]
    return [run.result(60) for run in runs]


def expected(clock: int) -> np.ndarray:
    return sum(numbers(worker, before).astype(np.float64) for before in range(clock) for worker in range(MEMBERS))


def right(reads: list[list[bytes]], first: int = 0) -> None:
    """All the same bits, and the sum of all clocks before."""
    for offset, values in enumerate(zip(*reads, strict=True)):
        assert len(set(values)) == 1, first + offset
        value = np.frombuffer(values[0], np.float32).reshape(SHAPE)
        assert np.allclose(value, expected(first + offset), rtol=1e-4, atol=1e-2), first + offset


def gets(client: redis.Redis) -> int:
    return client.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"]


def test_one_asks_for_the_deltas_and_the_others_hear_the_sum(together: Together, client: redis.Redis) -> None:
    workers = together(MEMBERS, staleness=0)
    before, clocks = gets(client), 30
    reads = all_train(workers, clocks)
    right(reads)
    # one asks for the deltas; without it six would. Whoever did not hear it in time asks for itself
    assert gets(client) - before < MEMBERS // 2 * clocks
    with Job(workers[0]._clock.settings.url, workers[0].job) as job:
        assert np.allclose(job.table("w").get(), expected(clocks), rtol=1e-4, atol=1e-2)


def test_what_it_is_worth_where_only_one_at_a_time_reads(together: Together, client: redis.Redis) -> None:
    """The last to tick sums; then the others read, one after the other, and none of them asks for a delta."""
    workers = together(MEMBERS, staleness=0)
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    for worker, table in zip(workers, tables, strict=True):
        table.get()
        table.inc(numbers(int(worker.id), 0))
        worker.advance()
    for worker in workers:
        worker.wait(10)
    for table in reversed(tables):  # its worker was the last to tick: it sums, and says
        table.get()
    for worker, table in zip(workers, tables, strict=True):
        table.inc(numbers(int(worker.id), 1))
        worker.advance()
    for worker in workers:
        worker.wait(10)
    tables[-1].get()
    known = gets(client)
    values = [table.get().tobytes() for table in tables]
    assert gets(client) == known
    assert len(set(values)) == 1
    assert np.allclose(np.frombuffer(values[0], np.float32).reshape(SHAPE), expected(2), rtol=1e-4, atol=1e-2)


def test_who_completes_a_clock_and_does_not_read_is_not_waited_for(together: Together) -> None:
    workers = together(MEMBERS, staleness=0)
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    for clock in range(8):
        for worker, table in zip(workers, tables, strict=True):
            table.inc(numbers(int(worker.id), clock))
            worker.advance()
        for worker in workers:
            worker.wait(10)
        for table in tables[:-1]:  # not the one of the last to tick
            assert np.allclose(table.get(), expected(clock + 1), rtol=1e-4, atol=1e-2)
    assert np.allclose(tables[-1].get(), expected(8), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("lie", ["epoch", "tick", "version", "table", "size", "words"])
def test_what_is_not_the_sum_that_the_log_names_is_not_taken(together: Together, client: redis.Redis, lie: str) -> None:
    """As one would say it that knows another past: the server was rolled back, and that is not known yet."""
    workers = together(MEMBERS, staleness=0)
    all_train(workers, 3)  # ears are open
    for table in [worker.table("w") for worker in workers]:
        table.get()
    view, caller = workers[0]._store.views["w"], workers[5]._clock.caller
    end = 2 * MEMBERS + 3 * MEMBERS  # joins, and after the next clock five ticks of each: what the next read asks for
    epoch, clock = caller.epoch + (lie == "epoch"), 4 + (lie == "tick")
    header = sum_header(view.layout.block(0), caller.incarnation, clock, end + (lie == "version"), epoch)
    if lie == "table":
        header = header[:16] + b"\x07" + header[17:]
    wrong = header + np.full(SHAPE, 7, np.float32).tobytes()[: -4 if lie == "size" else None]
    for worker in workers:
        worker.table("w").inc(numbers(int(worker.id), 3))
    for worker in workers:
        worker.advance()
    assert client.publish(keys_of(workers[0]).sums, b"hello" if lie == "words" else wrong) == MEMBERS
    for worker in workers:
        worker.wait(10)
    for worker in workers:
        assert np.allclose(worker.table("w").get(), expected(4), rtol=1e-4, atol=1e-2)


def step(workers: list[Worker], tables: list[Table], clock: int) -> None:
    """All add, and are admitted; the last one is who completed the clock."""
    for worker, table in zip(workers, tables, strict=True):
        table.inc(numbers(int(worker.id), clock))
        worker.advance()
    for worker in workers:
        worker.wait(10)


def test_over_a_connection_that_is_read_through_a_buffer(together: Together, client: redis.Redis) -> None:
    """As one with TLS is."""
    workers = together(MEMBERS, staleness=0)
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    step(workers, tables, 0)
    for table in reversed(tables):
        table.get()
    for worker in workers:
        worker._store.folder.sums._ear._wire._flags = 0
    for clock in (1, 2):
        step(workers, tables, clock)
        tables[-1].get()
        known = gets(client)
        assert len({table.get().tobytes() for table in tables}) == 1
        assert gets(client) == known


def test_tables_of_other_sizes_read_in_another_order(together: Together, client: redis.Redis) -> None:
    workers = together(MEMBERS, staleness=0)
    both = [[worker.table(name, np.zeros(size)) for name, size in (("a", 700), ("b", 900))] for worker in workers]
    for clock in range(4):
        for worker, tables in zip(workers, both, strict=True):
            for table in tables:
                table.inc(np.full(table.shape, 1.0 + clock))
            worker.advance()
        for worker in workers:
            worker.wait(10)
        for table in both[-1]:
            table.get()
        known = gets(client)
        for tables in both[:-1]:
            for table in reversed(tables):
                assert (table.get() == sum(MEMBERS * (1.0 + before) for before in range(clock + 1))).all()
        assert clock == 0 or gets(client) == known  # at first they begin to listen


@pytest.mark.parametrize("shape", [(1, 40_000), (3, 200_000)])
def test_a_table_of_one_share_that_is_not_small_is_not_said(
    join: Callable[..., Worker], client: redis.Redis, shape: tuple[int, ...]
) -> None:
    """One that was made for one worker, or has one row."""
    workers = [join(number, workers=1, staleness=0) for number in range(MEMBERS)]
    tables = [worker.table("w", np.zeros(shape, np.float32)) for worker in workers]
    assert tables[0]._view.layout.shares == 1
    for clock in range(1, 4):
        for worker, table in zip(workers, tables, strict=True):
            table.inc(np.ones(shape, np.float32))
            worker.advance()
        for worker in workers:
            worker.wait(10)
        for table in tables:
            assert (table.get() == MEMBERS * clock).all()
    assert client.pubsub_numsub(keys_of(workers[0]).sums)[0][1] == 0


def test_what_is_not_waited_for_does_not_pile_up(together: Together, client: redis.Redis) -> None:
    """Who completes the clocks reads late, so that nobody waits for it after a while; it says its sums all the same."""
    workers = together(MEMBERS, staleness=0)
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    for clock in range(40):
        step(workers, tables, clock)
        for table in tables:  # the last one last
            table.get()
    unread = [int(one["omem"]) for one in client.client_list(_type="pubsub")]
    assert sum(unread) < 17 * tables[0].get().nbytes  # its own ear is emptied from time to time


def test_a_message_that_does_not_go_on_is_not_waited_for(
    join: Callable[..., Worker], together: Together, proxy: Proxy
) -> None:
    behind = background(join, 0, workers=MEMBERS, staleness=0, url=proxy.url)
    joining = [background(join, number, workers=MEMBERS, staleness=0) for number in range(1, MEMBERS)]
    workers = [future.result(20) for future in (behind, *joining)]
    tables = [worker.table("w", np.zeros(SHAPE, np.float32)) for worker in workers]
    for clock in range(4):
        step(workers, tables, clock)
        if clock == 2:
            (ear,) = proxy.pairs(keys_of(workers[0]).sums.encode())
            ear.stall_after(down=1000)
        tables[-1].get()
        begun = time.monotonic()
        assert np.allclose(tables[0].get(), expected(clock + 1), rtol=1e-4, atol=1e-2)
        assert time.monotonic() - begun < 2.0  # a connection's own patience is 5 s
        for table in tables[1:]:
            table.get()


def test_without_the_right_to_the_channel_each_asks(
    together: Together, client: redis.Redis, url: str, job: str
) -> None:
    prefix = JobKeys(job).prefix
    client.acl_setuser(
        f"deaf-{job}",
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        channels=[f"{prefix}min", f"{prefix}*:commits"],
        commands=["+@all"],
        reset=True,
    )
    options = f"{'&' if '?' in url else '?'}username=deaf-{job}&password=secret"
    try:
        workers = together(MEMBERS, staleness=0, url=url + options)
        right(all_train(workers, 4))
        assert gets(client)
    finally:
        client.acl_deluser(f"deaf-{job}")


def test_a_lost_subscription_costs_no_more_than_the_shortcut(together: Together, client: redis.Redis) -> None:
    workers = together(MEMBERS, staleness=0)
    reads = all_train(workers, 5)
    client.client_kill_filter(_type="pubsub", skipme=True)
    more = all_train(workers, 20)
    right([before + after for before, after in zip(reads, more, strict=True)])


def test_in_turn_with_other_tables(together: Together) -> None:
    """Tables that are read in another order by each worker, one of them too large to be said, one too small."""
    workers = together(MEMBERS, staleness=0)
    sizes = {"a": 3000, "b": 5000, "c": 3000, "large": 300_000, "tiny": 3}

    def run(worker: Worker) -> None:
        tables = {name: worker.table(name, np.zeros(size)) for name, size in sizes.items()}
        draw = np.random.default_rng(int(worker.id))
        for clock in worker.clocks(15):
            for name in draw.permutation(list(sizes)):
                assert (tables[name].get() == MEMBERS * clock).all(), (name, clock)
                tables[name].inc(np.ones(sizes[name]))

    for run_ in [background(run, worker) for worker in workers]:
        run_.result(60)


def test_who_reads_no_more_or_has_left_hears_no_more(together: Together, url: str) -> None:
    workers = together(MEMBERS, staleness=0)
    all_train(workers, 3)
    channel = keys_of(workers[0]).sums
    with redis.Redis.from_url(in_database(url, 0)) as client:

        def heard_by(count: int) -> None:
            """Are there so many ears? The server notices a little later that a connection was closed."""
            eventually(lambda: client.pubsub_numsub(channel)[0][1] == count)

        heard_by(MEMBERS)

        def silent(worker: Worker) -> None:
            table = worker.table("w")
            for _ in range(130):
                table.inc(np.zeros(SHAPE, np.float32))
                worker.tick(30)

        for run in [background(silent, worker) for worker in workers]:
            run.result(60)
        heard_by(0)
        for run in [background(worker.table("w").get) for worker in workers]:
            run.result(60)
        heard_by(MEMBERS)
        for count, worker in enumerate(workers, 1):
            worker.detach() if count % 2 else worker.leave()
            heard_by(MEMBERS - count)
