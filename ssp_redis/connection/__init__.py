"""Connections to the server: made by redis-py, spoken to directly."""

from .backoff import Backoff
from .endpoint import Endpoint
from .replies import RIGHTS, ReplyError, denied, refused
from .resp import Buffer, Packed, Reply, Word, command, encode
from .values import Values
from .wire import Wire

__all__ = [
    "RIGHTS",
    "Backoff",
    "Buffer",
    "Endpoint",
    "Packed",
    "Reply",
    "ReplyError",
    "Values",
    "Wire",
    "Word",
    "command",
    "denied",
    "encode",
    "refused",
]
