"""One clock's deltas on their way: in slots of the worker's own or, if tiny, in the tag; the tick makes them count."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable

from ..connection import Buffer, Packed, Wire, command, encode
from ..keys import StoreKeys
from .blob import HEADER_SIZE, delta_front, delta_rest
from .layout import SMALL, Layout
from .ring import Ring
from .view import Array, View, as_bytes

#: So many bytes of deltas the tag of one tick holds at the most: what is beyond goes to slots.
_TAG = 256
#: Up to so many bytes it costs less to copy a delta into its command than to send it in parts.
_COPIED = 1 << 12
#: How many bytes of deltas may be unacknowledged at once.
_WINDOW = 4 << 20


class TablePush:
    """What one tick carries (see ``clock.Push``). The deltas are frozen: said again, they are the same.

    Args:
        clock: the clock that the tick takes the worker to.
        known: log position after which the tick shall bring the tags, −1: none.
        done: called when the tick has happened.
        again: called before it is tried once more.
    """

    def __init__(
        self,
        keys: StoreKeys,
        ring: Ring,
        views: list[View],
        clock: int,
        known: int,
        done: Callable[[TablePush], None],
        again: Callable[[Wire], None],
    ) -> None:
        self.again = again
        self._keys = keys
        self._ring = ring
        self.views = views
        self.clock = clock
        self.known = known
        self._done = done
        # Said again after an interruption, the deltas are the same, whatever the views have made of them meanwhile.
        #: Those that go to slots, and those that the tag holds.
        self._slotted: list[tuple[Layout, Array]] = []
        self._inline: list[tuple[Layout, Array]] = []
        #: Bytes that go to slots, and the number of blocks.
        size = blocks = 0
        room = _TAG
        for view in views:
            layout, delta = view.layout, view.frozen
            assert delta is not None
            if layout.inline and layout.nbytes <= room:
                self._inline.append((layout, delta))
                room -= layout.nbytes
            else:
                self._slotted.append((layout, delta))
                size += layout.nbytes
                blocks += layout.blocks
        #: Is all of it to go in one transaction with the tick?
        self._together = size <= SMALL and blocks == len(self._slotted)

    @property
    def note(self) -> str:
        """ "ring:table.slot,table=delta,…": where a reader finds the deltas."""
        if not self.views:
            return "-:"
        ring, words = self._ring, []
        for layout, _ in self._slotted:
            words.append(f"{layout.number}.{ring.slot(layout.number, layout.slots)}")
        for layout, delta in self._inline:
            words.append(f"{layout.number}={b2a_base64(delta, newline=False).decode()}")  # type: ignore[arg-type]
        return f"{ring.number}:{','.join(words)}"

    def commands(self) -> list[Packed] | None:
        """All as commands for the tick's transaction, if they are small enough."""
        if not self._slotted:
            return []
        if not self._together:
            return None
        ring = self._ring
        words: list[Packed] = [] if ring.registered else list(register(self._keys, ring))
        for layout, delta in self._slotted:
            slot = ring.slot(layout.number, layout.slots)
            head = self._head(layout, 0, slot) + delta_rest(ring.incarnation, self.clock, ring.number, slot)
            if layout.nbytes > _COPIED:
                words.append((head, as_bytes(delta), b"\r\n"))
            else:
                words.append(b"%b%b\r\n" % (head, delta.tobytes()))
        return words

    def send(self, wire: Wire) -> None:
        """Write all, and return when all is acknowledged: only then may the tick make it count."""
        ring, parts, outstanding = self._ring, list[Buffer](), 0
        if registration := register(self._keys, ring):
            wire.call_all(registration)
        for layout, delta in self._slotted:
            slot = ring.slot(layout.number, layout.slots)
            rest = delta_rest(ring.incarnation, self.clock, ring.number, slot)
            for block in range(layout.blocks):
                part = as_bytes(delta[layout.extent(block)])
                if parts and outstanding + part.nbytes > _WINDOW:
                    wire.send_parts(parts)
                    wire.read_done(len(parts) // 3)
                    parts, outstanding = [], 0
                parts += (self._head(layout, block, slot) + rest, part, b"\r\n")
                outstanding += part.nbytes
        wire.send_parts(parts)
        wire.read_done(len(parts) // 3)

    def committed(self, end: int) -> None:
        """The tick has happened: the deltas are in the log, and their slots are taken until bases hold its prefix."""
        for view in self.views:
            view.committed(self.clock, end)
            self._ring.take(view.layout.number, view.layout.slots, end)
        self._done(self)

    def moved(self, clock: int) -> None:
        """The tick will take the worker to another clock: so will the headers say."""
        self.clock = clock

    def renew(self, wire: Wire) -> None:
        """Nobody knows what of the last attempt is still on its way: turn to a fresh ring."""
        if self.views:
            self.again(wire)
        if self._slotted:
            self._ring.renew()

    def _head(self, layout: Layout, block: int, slot: int) -> bytes:
        """What a SET to a slot begins with: the same each time the slot's turn comes."""
        heads, place = self._ring.heads, (layout.number, block, slot)
        head = heads.get(place)
        if head is None:
            size = HEADER_SIZE + layout.block_bytes[block]
            key = self._keys.slot(layout.number, block, self._ring.name, slot)
            head = b"*3\r\n" + encode(("SET", key)) + b"$%d\r\n" % size + delta_front(layout.block(block))
            heads[place] = head
        return head


def register(keys: StoreKeys, ring: Ring) -> list[bytes]:
    """Before the first SET of a ring or of scratch: what can be found can be swept."""
    if ring.registered:
        return []
    ring.registered = True
    return [command("SADD", keys.rings, ring.name)]
