"""What the server counted: bytes, time in scripts, and every command at its socket."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..connection import Wire

_LINE = re.compile(rb"(\d+\.\d+) \[\d+ (\S+)\] (.*)\Z", re.DOTALL)


def info(wire: Wire, section: str) -> dict[str, str]:
    """A section of INFO."""
    lines = wire.call("INFO", section).decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def net_bytes(wire: Wire) -> tuple[int, int]:
    """Bytes that the server has received and sent since it started, of all its clients."""
    stats = info(wire, "stats")
    return int(stats["total_net_input_bytes"]), int(stats["total_net_output_bytes"])


def script_time(wire: Wire) -> tuple[int, float]:
    """How many EVALSHA the server has run, and the seconds that it has spent in them."""
    line = info(wire, "commandstats").get("cmdstat_evalsha", "calls=0,usec=0")
    fields = dict(field.split("=") for field in line.split(","))
    return int(fields["calls"]), int(fields["usec"]) / 1e6


@dataclass(frozen=True)
class Seen:
    """A command as it came in at the server's socket."""

    #: Seconds, by the server's clock.
    at: float
    #: Who sent it: host:port, or unix:PATH for everybody on that socket.
    sender: str
    #: The words, quoted.
    text: str


class Monitor:
    """Every command that the server is sent, those inside scripts not counted: they cost no round trip."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        wire.call("MONITOR")

    def watch(self, seconds: float) -> Iterator[Seen]:
        """What comes in during the next ``seconds``."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._wire.ready(left):
                seen = parse(self._wire.read())
                if seen is not None:
                    yield seen

    def close(self) -> None:
        """Stop watching."""
        self._wire.close()


def parse(line: bytes) -> Seen | None:
    """A line of MONITOR; None for what a script called."""
    match = _LINE.match(line)
    if match is None or match[2] == b"lua":
        return None
    return Seen(float(match[1]), match[2].decode(errors="replace"), match[3].decode(errors="replace"))
