"""The two ends of a simulated link, and its two directions.

A link delivers bytes in order, in random pieces. Both ends read them through the same frame buffer
as real links. `network` creates the links and applies faults to them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.real.dialling import SILENCE_MS_MAX
from broker.storage.disk import FileRegion
from broker.world import End, Receiver
from protocol.wire.frame import FrameBuffer

if TYPE_CHECKING:
    from tests.sim.network import Network
    from tests.sim.world import SimWorld

FRAME_BYTES_MAX = 1 << 20
WINDOW_BYTES = 256 << 10
"""The bytes that the kernels of both sides buffer in one direction before the sender must wait."""


class Way:
    """One direction of a link: the bytes that one end has sent, in order, and possibly the end of
    the stream after them."""

    def __init__(self, network: Network, source: SimLink) -> None:
        self._network = network
        self._source = source
        self._queue: deque[tuple[int, int, bytes | End]] = deque()
        """For each item: its arrival time, its send time, and the item."""
        self._unacknowledged: deque[int] = deque()
        """The send times of items that have arrived, but without an acknowledgement so far."""
        self.size_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Return True if some item has not arrived yet."""
        return bool(self._queue)

    def put(self, sent: bytes | End) -> None:
        network = self._network
        now_ms = network.timeline.clock.monotonic_ms()
        due_ms = now_ms + network.delay_ms()
        if self._queue:
            due_ms = max(due_ms, self._queue[-1][0])
        self._queue.append((due_ms, now_ms, sent))
        network.under_way[self] = None
        if isinstance(sent, bytes):
            self.size_bytes += len(sent)
            self._source.world.later(SILENCE_MS_MAX, self._lose_patience)
        network.timeline.later(network, due_ms - now_ms, self.pump)

    def pump(self) -> None:
        """Deliver all items that are due. Tell the sender if it may send again."""
        network, source = self._network, self._source
        target = source.other
        assert target is not None, "nothing is sent before the link stands"
        now_ms = network.timeline.clock.monotonic_ms()
        is_open = network.is_open(source.host, target.host)
        while is_open and self._queue and self._queue[0][0] <= now_ms:
            _, sent_ms, sent = self._queue.popleft()
            network.note("arrive", source.host, target.host, _told(sent))
            if isinstance(sent, bytes):
                self.size_bytes -= len(sent)
                self._unacknowledged.append(sent_ms)
            target.arrived(sent)
        if network.is_open(target.host, source.host):
            self._unacknowledged.clear()
        if not (self._queue or self._unacknowledged):
            network.under_way.pop(self, None)
        if source.is_held_up and not source.is_stalled:
            source.is_held_up = False
            source.world.soon(source.tell_drained)

    def forget(self) -> None:
        """Drop all items, so that none is delivered any more."""
        self._queue.clear()
        self._unacknowledged.clear()
        self.size_bytes = 0
        self._network.under_way.pop(self, None)

    def _lose_patience(self) -> None:
        oldest_ms = min(
            [sent_ms for _, sent_ms, sent in self._queue if isinstance(sent, bytes)]
            + list(self._unacknowledged),
            default=None,
        )
        now_ms = self._network.timeline.clock.monotonic_ms()
        if oldest_ms is not None and now_ms - oldest_ms >= SILENCE_MS_MAX:
            self._source.fail(End.TIMED_OUT)


class SimLink:
    """One end of a link, with the interface of `SocketLink`."""

    def __init__(
        self,
        network: Network,
        world: SimWorld,
        host: str,
        receiver: Receiver,
        peer_host: str,
        peer_port: int,
    ) -> None:
        self.peer_id: int | None = None
        self.peer_host = peer_host
        self.peer = f"{peer_host}:{peer_port}"
        self.is_paused = False
        self.is_closed = False
        self.is_held_up = False
        """True if more bytes were sent than the kernels buffer."""
        self.world = world
        self.host = host
        self.other: SimLink | None = None
        self.way = Way(network, self)
        self.heard_ms = network.timeline.clock.monotonic_ms()
        """The last time at which this end's kernel knew that the other end was reachable."""
        self._network = network
        self._receiver = receiver
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._unread: deque[bytes | End] = deque()
        self._is_standing = False
        self._has_ended = False
        self._is_mute = False
        self._is_broken = False
        """True after the kernel has dropped the link. A send then fails."""

    # Events from the network.

    def stand(self) -> None:
        if not self.is_closed:
            self._is_standing = True
            self._network.note("linked", self.host, self.peer_host)
            self._receiver.linked(self)
            self._read()

    def arrived(self, sent: bytes | End) -> None:
        """Take an item into the buffer of this end's kernel."""
        if self.is_closed or self._is_broken:
            if isinstance(sent, bytes):
                self.way.put(End.RESET)
            return
        if sent is End.RESET:
            self._break()
        self._unread.append(sent)
        if self._is_standing:
            self._read()

    def fail(self, end: End) -> None:
        """Break the link, because the kernel has given up sending."""
        if self.is_closed or self._is_broken:
            return
        self._break()
        if self._is_standing:
            self._unread.append(end)
            self._read()
        elif self.world.held is not None:
            self.world.soon(self._tell, end)
        else:
            self._tell(end)

    def go_on(self) -> None:
        """Continue to read after the process was frozen."""
        if self._is_standing:
            self._read()

    def _break(self) -> None:
        self._is_broken = self._is_mute = True
        self.way.forget()

    def forget(self) -> None:
        """Close this end without telling the other one, because the process has ended."""
        self.is_closed = True
        self._unread.clear()

    def _read(self) -> None:
        while self._unread and not (
            self.is_paused or self.is_closed or self.world.is_over or self.world.held is not None
        ):
            sent = self._unread.popleft()
            if isinstance(sent, End):
                self._is_mute = self._is_mute or sent is not End.EOF
                self._tell(sent)
                return
            chance = self._network.chance
            if len(sent) > 1 and chance.random() < self._network.mix.splits:
                at = chance.randint(1, len(sent) - 1)
                self._unread.appendleft(sent[at:])
                sent = sent[:at]
            room = self._frames.get_buffer()
            count = min(len(room), len(sent))
            room[:count] = sent[:count]
            if count < len(sent):
                self._unread.appendleft(sent[count:])
            self._receiver.take(self._frames.received(count))

    def _tell(self, end: End) -> None:
        self._has_ended = self.is_paused = True
        self._network.note("end", self.host, self.peer_host, end.name)
        self._receiver.ended(end)

    def tell_drained(self) -> None:
        if not self.is_closed:
            self._receiver.drained()

    # The interface of `SocketLink`.

    @property
    def held_bytes(self) -> int:
        return self._frames.capacity_bytes

    @property
    def is_in_frame(self) -> bool:
        return bool(self._frames.pending_bytes)

    @property
    def is_stalled(self) -> bool:
        unread = [] if self.other is None else self.other._unread
        waiting = sum(len(sent) for sent in unread if isinstance(sent, bytes))
        return not self._is_mute and self.way.size_bytes + waiting > WINDOW_BYTES

    def left(self) -> Iterator[memoryview]:
        return self._frames.received(0)

    def send(self, chunks: Sequence[object]) -> None:
        if self.is_closed or self._is_mute:
            return
        assert self._is_standing, "nothing is sent before the link stands"
        data = b"".join(
            chunk.read() if isinstance(chunk, FileRegion) else bytes(chunk)  # type: ignore[call-overload]  # bytes-like
            for chunk in chunks
        )
        if data:
            self.way.put(data)
            self.is_held_up = self.is_stalled

    def limit_frames(self, bytes_max: int) -> None:
        self._frames.frame_bytes_max = bytes_max

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.world.soon(self._read_on)

    def _read_on(self) -> None:
        self._read()
        if self.other is not None:
            self.other.way.pump()

    def shrink(self) -> None:
        self._frames.shrink()

    def mute(self) -> None:
        self._is_mute = True

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._network.gone(self)
        if self.other is not None and not self._is_broken:
            # Like TCP: if received bytes are still unread, a close resets the connection.
            self.way.put(End.RESET if self._unread else End.EOF)
        self._unread.clear()
        self._frames = FrameBuffer(0)


def _told(sent: bytes | End) -> str:
    return sent.name if isinstance(sent, End) else hashlib.sha256(sent).hexdigest()
