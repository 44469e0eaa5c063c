"""The ear of a waiting worker: one subscribed connection, read by the thread that waits.

A notification only shortens a wait; the truth is in the clocks. So a subscriber never reconnects by itself: it raises,
and whoever waits opens a new one and asks (``sync``) before waiting on.
"""

from __future__ import annotations

from .connection import Endpoint, encode

#: Seconds in which the rest of a message has to come.
_REST = 0.25


class Subscriber:
    """Subscribed from the moment the constructor returns: the server has confirmed it.

    Raises:
        OSError: no connection, or it was lost.
    """

    def __init__(self, endpoint: Endpoint, channel: str, patience: float | None = None) -> None:
        self._head = b"*3\r\n" + encode(("message", channel)) + b"$"
        self._wire = endpoint.connect(patience, "waiting")
        self._wire.hurry(patience)
        # Subscribe first and wait for the confirmation: a change after it is heard, one before it is read.
        if self._wire.call("SUBSCRIBE", channel)[0] != b"subscribe":
            self.close()
            raise ConnectionError(f"{endpoint.label} did not confirm the subscription")
        self._wire.hurry(None)

    def last(self, timeout: float, run: str = "") -> str | None:
        """Wait up to ``timeout`` seconds for a message; of those that have come, return the last of ``run``.

        The socket is drained before a message is believed: an earlier one may announce a staleness or an epoch that no
        longer holds. What another run announces is not for this worker: a channel is the same in all databases of the
        server, and a job may be deleted and made anew under its name.
        """
        mine = run.encode()
        for message in reversed(self._hear(timeout)):
            if message.startswith(mine):
                return message.decode()
        return None

    def all(self, timeout: float) -> list[str]:
        """Wait up to ``timeout`` seconds for a message; return all that have come, in order."""
        return [message.decode() for message in self._hear(timeout)]

    def _hear(self, timeout: float) -> list[bytes]:
        messages: list[bytes] = []
        while self._wire.ready(0.0 if messages else timeout):
            texts = self._wire.payloads(self._head)
            if texts is not None:
                return messages + texts
            reply = self._wire.read()
            if reply[0] == b"message":
                messages.append(reply[2])
        return messages

    def take(self, timeout: float, header: bytearray, data: memoryview) -> bytes | None:
        """Wait up to ``timeout`` seconds for one message.

        Returns None if it is of exactly the size of ``header`` and ``data``, and in their memory; any other as it is,
        and b"" when none has come.

        Raises:
            OSError: the connection was lost, or what had begun to come did not go on.
        """
        if not self._wire.ready(timeout):
            return b""
        self._wire.hurry(max(timeout, _REST))
        reply = self._wire.read_message(self._head, memoryview(header), data)
        self._wire.hurry(None)
        if reply is None:
            return None
        payload: bytes = reply[2] if reply[0] == b"message" else b""
        return payload

    def drain(self) -> None:
        """Let go of all that has come.

        Raises:
            OSError: as :meth:`take`.
        """
        self._wire.hurry(_REST)
        while self._hear(0.0):
            pass
        self._wire.hurry(None)

    def close(self) -> None:
        """Stop listening."""
        self._wire.close()
