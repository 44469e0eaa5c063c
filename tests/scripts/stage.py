"""A stage on which the scripts are played by hand: members that state what they like, leases that run out at once.

The scripts run on the real server as a client would run them; their text may be a mutation (``without``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from explore.engine import arguments_of, keys_of, shipped
from explore.faults import Scripts, without

from ssp_redis.keys import CONTROL

__all__ = ["Member", "Refused", "Stage", "both", "client_rule", "rule", "without"]

LEASE_MS = 10_000


class Refused(Exception):
    """A script refused; ``code`` is its first word."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.code = int(answer.split(" ")[0])
        self.words = answer.split(" ")[1:]


@dataclass
class Standing:
    """Where an answer says that the job and the caller stand, and what else it says."""

    epoch: int
    low: int
    staleness: int
    membership: int
    stopped: bool
    started: bool
    clock: int
    end: int
    rest: list[str]

    @classmethod
    def of(cls, words: list[str]) -> Standing:
        epoch, low, staleness, membership, stopped, started, clock, end, *rest = words
        head = int(epoch), int(low), int(staleness), int(membership), stopped == "1", started == "1"
        return cls(*head, int(clock), int(end), rest)

    def admits(self, clock: int) -> bool:
        return self.started and (self.staleness < 0 or clock - self.low <= self.staleness)


class Member:
    """A process that has joined, or wants to; it states what it believes, true or not."""

    def __init__(self, stage: Stage, worker: str, nonce: str, known: int) -> None:
        self.stage, self.worker, self.nonce, self.known = stage, worker, nonce, known
        self.run, self.incarnation, self.epoch, self.clock = "", 0, 0, 0
        self.position, self.tag = -1, "-"
        self.joined_with: list[Any] = []

    @property
    def statement(self) -> list[Any]:
        return [self.run, self.epoch, self.worker, self.incarnation, self.clock]

    def join(self, *, name: str = "", workers: Any = "", staleness: Any = "", lease: Any = "") -> Standing:
        self.joined_with = [1, self.worker, self.nonce, self.known, "host", 7, name, workers, staleness, lease, ""]
        return self.join_again()

    def join_again(self) -> Standing:
        """The very same call once more."""
        answer = self.stage.call("join", *self.joined_with)
        self.incarnation, self.run = int(answer.rest[0]), answer.rest[1]
        self.epoch, self.clock = answer.epoch, answer.clock
        at = next(at for at, word in enumerate(answer.rest) if ":" in word)
        self.position, self.tag = int(answer.rest[at - 1]), answer.rest[at]
        return answer

    def tick(self, known: int = -1) -> Standing:
        answer = self.stage.call("tick", *self.statement, self.clock + 1, "-:", known)
        self.clock += 1
        self.position, self.tag = answer.end - 1, f"t:{self.worker}:{self.incarnation}:{self.clock}:-:"
        return answer

    def sync(self, tired: Any = "", lead: Any = "") -> Standing:
        evidence = self.position, self.tag
        answer = self.stage.call("sync", *self.statement, *evidence, self.nonce, "host", 7, tired, lead)
        self.epoch = answer.epoch
        self.position, self.tag = int(answer.rest[3]), answer.rest[4]
        return answer

    def leave(self, why: str = "left") -> Standing:
        return self.stage.call("leave", *self.statement, why)

    def evict(self) -> Standing:
        """Somebody else has this very incarnation evicted."""
        return self.stage.call("leave", self.run, self.stage.config("epoch"), *self.statement[2:4], 0, "evicted")


class Stage:
    """One job on the server, and the scripts to play it with."""

    def __init__(self, client: redis.Redis, job: str, scripts: Scripts) -> None:
        self.client = client
        self._prefix = f"ssp:{{{job}}}:"
        self._scripts = scripts
        self._nonces = itertools.count(1)
        self._ear = client.pubsub(ignore_subscribe_messages=True)
        self._ear.subscribe(self.key("min"))
        self._ear.get_message(timeout=1)

    def close(self) -> None:
        self._ear.close()

    def key(self, name: str) -> str:
        return self._prefix + name

    def call(self, script: str, *arguments: Any) -> Standing:
        """Run a script; its answer without the code, or :class:`Refused`."""
        text = self._scripts[script]
        keys = [self.key(name) for name in keys_of(text)]
        padded = [*arguments, *[""] * (arguments_of(text) - len(arguments))]
        answer = self.client.eval(text, len(keys), *keys, *padded).decode()
        code, *words = answer.split(" ")
        if code != "0":
            raise Refused(answer)
        return Standing.of(words)

    def process(self, worker: str | int) -> Member:
        """A process that has read who holds the id, and has not joined yet."""
        held = self.client.hget(self.key("ids"), str(worker))
        known = int(held.split(b" ")[0]) if held else 0
        return Member(self, str(worker), f"{next(self._nonces):016x}", known)

    def join(self, worker: str | int, **settings: Any) -> Member:
        member = self.process(worker)
        member.join(**settings)
        return member

    def team(self, count: int, staleness: int = 0) -> list[Member]:
        """So many workers who have joined a job of their own, and know it."""
        return [self.join(worker, workers=count, staleness=staleness) for worker in range(count)]

    def observe(self) -> Standing:
        return self.call("sync", self.config("run"), self.config("epoch"), "", 0, 0, -1, "-", "-", "-", 0)

    def configure(self, field: str, new: int, changes: int = 0) -> Standing:
        return self.call("configure", self.config("run"), field, changes, new)

    # -- looking -------------------------------------------------------------------------------------------------------

    def config(self, field: str) -> str:
        return (self.client.hget(self.key("config"), field) or b"").decode()

    def clocks(self) -> dict[str, int]:
        return {w.decode(): int(clock) for w, clock in self.client.hgetall(self.key("clocks")).items()}

    def members(self) -> set[str]:
        return {worker.decode() for worker in self.client.zrange(self.key("order"), 0, -1)}

    def log(self) -> list[str]:
        return [tag.decode() for tag in self.client.lrange(self.key("log"), 0, -1)]

    def everything(self) -> dict[str, Any]:
        """All keys, as bytes that only a change changes."""
        return {name: self.client.dump(self.key(name)) for name in CONTROL}

    def heard(self) -> list[Standing]:
        """What was announced since the last look."""
        messages = []
        while message := self._ear.get_message(timeout=0.05):
            run, *words = message["data"].decode().split(" ")
            assert run == self.config("run")
            messages.append(Standing.of([*words[:6], "0", "0"]))
        return messages

    def news(self) -> Standing:
        """The last of what was announced since the last look; there must be something."""
        messages = self.heard()
        assert messages, "nothing was announced"
        return messages[-1]

    # -- what befalls the job ------------------------------------------------------------------------------------------

    def lease_runs_out(self, *members: Member) -> None:
        self.client.zadd(self.key("leases"), {member.worker: 1 for member in members})

    def stands_still(self, ms: int) -> None:
        """So long the min has not moved since a blocked worker first looked."""
        still = self.config("still")
        assert still, "nobody has looked"
        low, since, newest = still.split(" ")
        self.client.hset(self.key("config"), "still", f"{low} {int(since) - ms} {newest}")

    def silence(self) -> None:
        """Nobody has synced for two leases, and every lease is over: the server was frozen."""
        self.client.hincrby(self.key("config"), "time", -2 * LEASE_MS)
        leases = self.client.zrange(self.key("leases"), 0, -1)
        self.client.zadd(self.key("leases"), dict.fromkeys(leases, 1))

    def backup(self) -> Callable[[], None]:
        """Remember the job's keys; calling what this returns makes the server fall back to them."""
        kept = self.everything()

        def fall_back() -> None:
            for name, data in kept.items():
                self.client.delete(self.key(name))
                if data is not None:
                    self.client.restore(self.key(name), 0, data)

        return fall_back


Edit = Callable[[Scripts], None]
Scenario = Callable[[Stage], None]

#: How a scenario ends that does not hold: an assertion, a call refused, a refusal that did not come.
ENDS = (AssertionError, Refused, pytest.fail.Exception)


def both(*edits: Edit) -> Edit:
    """A rule that stands in more than one place."""

    def edit(scripts: Scripts) -> None:
        for each in edits:
            each(scripts)

    return edit


HELD = ["the rule holds", "without the rule it fails"]


def rule(*, removed: Edit) -> Callable[[Scenario], Callable[..., None]]:
    """Make a scenario a test: it holds with the scripts that ship, and fails once ``removed`` has been applied."""

    def wrap(scenario: Scenario) -> Callable[..., None]:
        @pytest.mark.parametrize("state", HELD)
        def test(state: str, client: redis.Redis, job: str) -> None:
            scripts = shipped()
            if state != HELD[0]:
                removed(scripts)
            stage = Stage(client, job, scripts)
            try:
                if state == HELD[0]:
                    scenario(stage)
                else:
                    with pytest.raises(ENDS):
                        scenario(stage)
            finally:
                stage.close()

        test.__doc__ = scenario.__doc__
        return test

    return wrap


def client_rule(
    *, removed: Callable[[pytest.MonkeyPatch], None]
) -> Callable[[Callable[[str, str], None]], Callable[..., None]]:
    """The same for a rule of the client: ``removed`` patches it away. The scenario takes the URL and a job's name."""

    def wrap(scenario: Callable[[str, str], None]) -> Callable[..., None]:
        @pytest.mark.parametrize("state", HELD)
        def test(state: str, url: str, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
            if state == HELD[0]:
                scenario(url, job)
            else:
                removed(monkeypatch)
                with pytest.raises(ENDS):
                    scenario(url, job)

        test.__doc__ = scenario.__doc__
        return test

    return wrap
