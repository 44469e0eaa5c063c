"""Errors the server answers with: which pass by themselves, and what to do about the others."""

from __future__ import annotations

import re

from ..errors import ServerRefused


class ReplyError(Exception):
    """The server answered a command with an error; ``code`` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


#: Errors that go away by themselves: wait and connect again.
TRANSIENT = {"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "UNBLOCKED", "NOREPLICAS"}

#: All that a user needs: keys, channels and commands, as ``ACL SETUSER`` takes them.
RIGHTS = (
    "~ssp:* &ssp:* +@read +@write -@dangerous "
    "+eval +evalsha +multi +exec +subscribe +publish +time +info +client|setname"
)

#: What the server says, and what to do about it.
_CURES = {
    "OOM": "the server's memory is full (maxmemory): raise maxmemory, or delete what is not needed",
    "MISCONF": "the server cannot write its snapshot to disk: free disk space, or see `save` in its configuration",
    "READONLY": "this server is a read-only replica: give the URL of the master",
    "NOAUTH": "the server wants a password: put it into the URL, redis://:PASSWORD@HOST:PORT",
    "WRONGPASS": "the user name or password in the URL is wrong",
    "LOADING": "the server is still loading its data",
    "BUSY": "a script of somebody else is blocking the server",
    "NOREPLICAS": "the server has too few replicas to accept writes (min-replicas-to-write)",
    "MASTERDOWN": "the replica has lost its master",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "the job's slot has been on its way to another node of the cluster for too long",
    "MOVED": "this server is a node of a cluster: give redis+cluster://HOST:PORT",
    "ASK": "the job's slot is on its way to another node of the cluster: try again (and give redis+cluster://HOST:PORT)",
    "NOCLUSTER": "this server is no cluster: give redis://HOST:PORT",
}


def denied(text: str) -> str | None:
    """The right that an error says is missing, as ``ACL SETUSER`` takes it.

    "" where it does not say which; None: it is another error. Servers word it differently, and within scripts
    differently again.
    """
    low = text.lower()
    if "noperm" not in low and "permission" not in low and "the user executing the script can't" not in low:
        return None
    if "channel" in low:
        return "&ssp:*"
    if " key" in low:
        return "~ssp:*"
    return " ".join(f"+{name}" for name in re.findall(r"the '([^' ]+)' command", low))


def refused(error: ReplyError, label: str) -> ServerRefused:
    """The exception for an error the server answered: its cause and what to do, in one place."""
    text = str(error)
    right = denied(text)
    if right is not None:
        cure: str | None = f"a user for ssp-redis needs: {RIGHTS}"
        if right == "+cluster|slots":
            cure = f"on a cluster it needs that too: ACL SETUSER USER {right}"
        elif right:
            cure = f"the user lacks {right}: ACL SETUSER USER {right}; {cure}"
    elif "cluster support disabled" in text or "Cluster mode is not enabled" in text:
        cure = _CURES["NOCLUSTER"]
    else:
        cure = _CURES.get(error.code)
    return ServerRefused(f"{label} refused: {text}" + (f" — {cure}" if cure else ""))
