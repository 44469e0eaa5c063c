"""Errors the server answers with: which pass by themselves, and what to do about the others."""

from __future__ import annotations

from ..errors import ServerRefused


class ReplyError(Exception):
    """The server answered a command with an error; ``code`` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


#: Errors that go away by themselves: wait and connect again.
TRANSIENT = {"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "UNBLOCKED", "NOREPLICAS"}

#: What the server says, and what to do about it.
_CURES = {
    "OOM": "the server's memory is full (maxmemory): raise maxmemory, or delete what is not needed",
    "MISCONF": "the server cannot write its snapshot to disk: free disk space, or see `save` in its configuration",
    "READONLY": "this server is a read-only replica: give the URL of the master",
    "NOPERM": "the user lacks a right; a user for ssp-redis needs: ~ssp:* &ssp:* +@all -@admin -@dangerous +info",
    "NOAUTH": "the server wants a password: put it into the URL, redis://:PASSWORD@HOST:PORT",
    "WRONGPASS": "the user name or password in the URL is wrong",
    "LOADING": "the server is still loading its data",
    "BUSY": "a script of somebody else is blocking the server",
    "NOREPLICAS": "the server has too few replicas to accept writes (min-replicas-to-write)",
    "MASTERDOWN": "the replica has lost its master",
    "CLUSTERDOWN": "the cluster is down",
}


def refused(error: ReplyError, label: str) -> ServerRefused:
    """The exception for an error the server answered: its cause and what to do, in one place."""
    text = str(error)
    code = "NOPERM" if "permission" in text.lower() or "can't publish" in text else error.code
    cure = _CURES.get(code)
    return ServerRefused(f"{label} refused: {text}" + (f" — {cure}" if cure else ""))
