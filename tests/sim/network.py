"""The network between simulated worlds: dials, links, and all that becomes of them, from one seed.

Each world is one life of a process on a host. A link carries bytes in their order, in pieces as
chance cuts them, and both ends read them through the frame buffer that real links have. What is
sent into a cut waits, as TCP would send it again, until the cut is healed or the sender's patience
is over; a process that ends has its links reset by its kernel, a host that loses its power says
nothing.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from broker.real.dialling import CONNECT_S_MAX, SILENCE_MS_MAX
from broker.storage.disk import FileRegion
from broker.world import Address, End, Link, Receiver
from protocol.wire.frame import FrameBuffer
from tests.sim.world import SimWorld, Timeline

FRAME_BYTES_MAX = 1 << 20
WINDOW_BYTES = 256 << 10
"""What the kernels of both sides hold of one direction before the sender has to wait."""
CONNECT_MS_MAX = int(CONNECT_S_MAX * 1000)
PING_MS = 500
"""How often both kernels of a link see whether the other is still there (`real/silence`)."""
TRY_AGAIN_MS = 1_000
"""After that an unanswered SYN is sent again."""
LISTENS_ON_MS = 8
"""So long at most the kernel still listens for a process whose links it has thrown away: Linux
closes the descriptors of who is killed one by one, and listeners tend to be the last."""


@dataclass
class Mix:
    """How the network is on an ordinary day: delays in ms, chances from 0 to 1."""

    delay_ms: tuple[int, int] = (0, 3)
    late_ms: tuple[int, int] = (20, 400)
    late: float = 0.0
    splits: float = 0.2
    """How often what arrives is read in two pieces."""


class Network:
    """All hosts, whoever lives there, and the links between them."""

    def __init__(self, seed: int | str, mix: Mix | None = None) -> None:
        self.timeline = Timeline()
        self.chance = Random(f"network {seed}")
        self.mix = mix or Mix()
        self.is_over = False
        self.held: list[Callable[[], object]] | None = None
        self.cuts: set[tuple[str, str]] = set()
        """(from, to): nothing sent that way arrives."""
        self.no_way: set[tuple[str, str]] = set()
        """(from, to): a router says that there is no way."""
        self.unnamed: set[str] = set()
        """Hosts whose names no resolver knows for now."""
        self.powerless: set[str] = set()
        self._lives: dict[str, SimWorld] = {}
        self._hosts: dict[SimWorld, str] = {}
        self._links: dict[SimLink, None] = {}
        self._listen_on: dict[str, tuple[int, set[int]]] = {}
        """By host whose process was killed: until when its kernel listens on, and on what ports."""
        self.under_way: dict[Way, None] = {}
        """Where something has been sent of which the sender has not heard."""
        self._life_count = 0
        self._trace = hashlib.sha256()
        self._seed = seed
        self.timeline.later(self, PING_MS, self._ping)

    # Hosts.

    def world(self, host: str) -> SimWorld:
        """A new life of the process on a host; the one before must be over."""
        assert host not in self._lives, f"{host} is running"
        self._life_count += 1
        self.powerless.discard(host)
        world = SimWorld(
            f"{self._seed} {host} {self._life_count}", timeline=self.timeline, network=self
        )
        self._lives[host] = world
        self._hosts[world] = host
        return world

    def world_of(self, host: str) -> SimWorld:
        """The life of the process that runs on a host."""
        return self._lives[host]

    def kill(self, host: str) -> None:
        """The process ends; its kernel throws away its links, and its listeners after them."""
        ports = {one.address.port for one in self._lives[host].listening.values() if one.is_open}
        now_ms = self.timeline.clock.monotonic_ms()
        self._listen_on[host] = (now_ms + self.chance.randint(0, LISTENS_ON_MS), ports)
        for link in self._end_life(host):
            if link.other is not None:
                link.way.put(End.RESET)

    def freeze(self, host: str) -> None:
        """The process stands still; its kernel takes links and what comes on them."""
        self._lives[host].freeze()

    def thaw(self, host: str) -> None:
        """It goes on, and reads what has come behind what was due."""
        world = self._lives[host]
        world.thaw()
        for link in list(self._links):
            if link.world is world:
                link.go_on()
        world.settle()

    def cut_power(self, host: str) -> None:
        """The whole machine is silent, until a new life begins on it."""
        self._end_life(host)
        self.powerless.add(host)

    def _end_life(self, host: str) -> list[SimLink]:
        world = self._lives.pop(host)
        world.is_over = True
        self.note("end", host)
        ended = [link for link in self._links if link.world is world]
        for link in ended:
            link.forget()
            self.gone(link)
        return ended

    # Faults of the way.

    def cut(self, source: str, target: str) -> None:
        """From here on nothing arrives that way."""
        self.cuts.add((source, target))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Repair one way, or all of them, also those that routers denied, and all names."""
        if source is not None and target is not None:
            self.cuts.discard((source, target))
            self.no_way.discard((source, target))
        else:
            self.cuts.clear()
            self.no_way.clear()
            self.unnamed.clear()
        for way in list(self.under_way):
            way.pump()

    def lose_links(self, one: str, two: str) -> None:
        """Something in between throws away every link of two hosts."""
        for link in list(self._links):
            if link.other is not None and {link.host, link.other.host} == {one, two}:
                link.arrived(End.RESET)

    def is_open(self, source: str, target: str) -> bool:
        """Whether what is sent that way arrives."""
        way = (source, target)
        return not (way in self.cuts or way in self.no_way or target in self.powerless)

    def _ping(self) -> None:
        now_ms = self.timeline.clock.monotonic_ms()
        for link in list(self._links):
            other = link.other
            if other is None:
                continue
            if not (self.is_open(link.host, other.host) and self.is_open(other.host, link.host)):
                if now_ms - link.heard_ms >= SILENCE_MS_MAX:
                    link.fail(End.TIMED_OUT)
                continue
            link.heard_ms = now_ms
            if other.world.is_over and not other.way.is_busy:
                # The machine is back, and its kernel knows nothing of the link.
                link.arrived(End.RESET)
        self.timeline.later(self, PING_MS, self._ping)

    # Dials.

    def dial(
        self, world: SimWorld, address: Address, receiver: Receiver, asks_resolver: bool
    ) -> Link:
        link = SimLink(self, world, self._hosts[world], receiver, address.host, address.port)
        self._links[link] = None
        host = address.host
        if asks_resolver and host not in self.unnamed:
            world.known_hosts.add(host)
        if host not in world.known_hosts:
            world.later(self.delay_ms(), lambda: link.fail(End.UNRESOLVED))
            return link
        began_ms = self.timeline.clock.monotonic_ms()
        world.later(self.delay_ms(), lambda: self._call(link, address, began_ms))
        return link

    def _call(self, link: SimLink, address: Address, began_ms: int) -> None:
        """The SYN is on its way."""
        if link.is_closed:
            return
        source, target = link.host, address.host
        if (source, target) in self.no_way:
            link.fail(End.UNREACHABLE)
        elif self.is_open(source, target) and self.is_open(target, source):
            self._answer(link, address)
        elif self.timeline.clock.monotonic_ms() + TRY_AGAIN_MS - began_ms > CONNECT_MS_MAX:
            link.world.later(TRY_AGAIN_MS, lambda: link.fail(End.TIMED_OUT))
        else:
            link.world.later(TRY_AGAIN_MS, lambda: self._call(link, address, began_ms))

    def _answer(self, link: SimLink, address: Address) -> None:
        world = self._lives.get(address.host)
        listening = [
            one
            for one in ([] if world is None else world.listening.values())
            if one.is_open and one.address.port == address.port
        ]
        if world is None and self._listens_on(address):
            # Nobody will ever take it: its end comes as soon as the listener's does.
            link.mute()
            link.world.later(self.delay_ms(), link.stand)
            link.world.later(LISTENS_ON_MS, lambda: link.arrived(End.RESET))
            return
        if world is None or not listening:
            link.fail(End.REFUSED)
            return
        self.note("accept", address.host, link.host)
        other = SimLink(
            self, world, address.host, listening[0].accept(), link.host, 1 + len(self._links)
        )
        self._links[other] = None
        link.other, other.other = other, link
        # The kernel accepts; the process hears of it in its next turn, if it has one.
        if world.held is None:
            other.stand()
        else:
            world.soon(other.stand)
        link.world.later(self.delay_ms(), link.stand)

    def _listens_on(self, address: Address) -> bool:
        until_ms, ports = self._listen_on.get(address.host, (0, set()))
        return self.timeline.clock.monotonic_ms() < until_ms and address.port in ports

    # The seed.

    def delay_ms(self) -> int:
        mix = self.mix
        is_late = mix.late and self.chance.random() < mix.late
        return self.chance.randint(*(mix.late_ms if is_late else mix.delay_ms))

    def note(self, *told: object) -> None:
        """One line of the trace."""
        self._trace.update(repr((self.timeline.clock.monotonic_ms(), *told)).encode())

    @property
    def trace_digest(self) -> str:
        """What tells two courses apart."""
        return self._trace.hexdigest()

    def gone(self, link: SimLink) -> None:
        """Nothing happens on it any more."""
        self._links.pop(link, None)


class Way:
    """What one end of a link sends: bytes, and the end behind them, in their order."""

    def __init__(self, network: Network, source: SimLink) -> None:
        self._network = network
        self._source = source
        self._queue: deque[tuple[int, int, bytes | End]] = deque()
        """When each is due at the other side, when it was sent, and what it is."""
        self._unacknowledged: deque[int] = deque()
        """When each was sent that has arrived, but of which the sender has not heard."""
        self.size_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Whether something is still to arrive."""
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
        """Let arrive what is due, and let the sender hear of it."""
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
        """Send nothing of it again."""
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
    """One end of a link, as `SocketLink` is."""

    def __init__(
        self,
        network: Network,
        world: SimWorld,
        host: str,
        receiver: Receiver,
        peer_host: str,
        peer_port: int,
    ) -> None:
        self.peer_host = peer_host
        self.peer = f"{peer_host}:{peer_port}"
        self.is_paused = False
        self.is_closed = False
        self.is_held_up = False
        """Whether more was sent than the way holds."""
        self.world = world
        self.host = host
        self.other: SimLink | None = None
        self.way = Way(network, self)
        self.heard_ms = network.timeline.clock.monotonic_ms()
        """When its kernel last knew that the other one was there."""
        self._network = network
        self._receiver = receiver
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._unread: deque[bytes | End] = deque()
        self._is_standing = False
        self._has_ended = False
        self._is_mute = False
        self._is_broken = False
        """Whether the kernel knows the link no more: who sends to it is told so."""

    # The network does this.

    def stand(self) -> None:
        if not self.is_closed:
            self._is_standing = True
            self._network.note("linked", self.host, self.peer_host)
            self._receiver.linked(self)
            self._read()

    def arrived(self, sent: bytes | End) -> None:
        """The kernel has it."""
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
        """The kernel gives it up."""
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
        """The process has stood still, and reads on."""
        if self._is_standing:
            self._read()

    def _break(self) -> None:
        self._is_broken = self._is_mute = True
        self.way.forget()

    def forget(self) -> None:
        """The process is over."""
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

    # The receiver does this.

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
            # A kernel that has not read everything resets, others say goodbye.
            self.way.put(End.RESET if self._unread else End.EOF)
        self._unread.clear()
        self._frames = FrameBuffer(0)


def _told(sent: bytes | End) -> str:
    return sent.name if isinstance(sent, End) else hashlib.sha256(sent).hexdigest()
