"""The network between simulated worlds: connections, links and their faults, from one seed.

Each world is one process on a host. A link delivers bytes in order, in random pieces. Both ends
read them through the same frame buffer as real links. Bytes sent into a cut wait, as if TCP
retransmitted them, until the cut is healed or the sender gives up. When a process ends, its kernel
resets its links. A host without power sends nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from broker.real.dialling import CONNECT_S_MAX, SILENCE_MS_MAX
from broker.world import Address, End, Link, Receiver
from tests.sim.links import SimLink, Way
from tests.sim.world import SimWorld, Timeline

CONNECT_MS_MAX = int(CONNECT_S_MAX * 1000)
PING_MS = 500
"""The interval at which both kernels of a link probe the other end (`real/silence`)."""
TRY_AGAIN_MS = 1_000
"""The time after which an unanswered SYN is sent again."""
LISTENS_ON_MS = 8
"""The longest time for which the kernel still listens for a killed process: Linux closes its
descriptors one by one, and listeners tend to be the last."""


@dataclass
class Mix:
    """The behaviour of the network without faults: delays in ms, probabilities from 0 to 1."""

    delay_ms: tuple[int, int] = (0, 3)
    late_ms: tuple[int, int] = (20, 400)
    late: float = 0.0
    splits: float = 0.2
    """The probability that arriving bytes are read in two pieces."""


class Network:
    """All hosts, their processes, and the links between them."""

    def __init__(self, seed: int | str, mix: Mix | None = None) -> None:
        self.timeline = Timeline()
        self.chance = Random(f"network {seed}")
        self.mix = mix or Mix()
        self.is_over = False
        self.held: list[Callable[[], object]] | None = None
        self.cuts: set[tuple[str, str]] = set()
        """(from, to): bytes in this direction do not arrive."""
        self.no_way: set[tuple[str, str]] = set()
        """(from, to): a router reports that there is no route."""
        self.unnamed: set[str] = set()
        """Hosts whose names do not resolve for now."""
        self.powerless: set[str] = set()
        self._lives: dict[str, SimWorld] = {}
        self._hosts: dict[SimWorld, str] = {}
        self._links: dict[SimLink, None] = {}
        self._listen_on: dict[str, tuple[int, set[int]]] = {}
        """For each host with a killed process: the time until which its kernel still listens, and
        the ports."""
        self.under_way: dict[Way, None] = {}
        """The links on which sent bytes are not yet acknowledged."""
        self._life_count = 0
        self._trace = hashlib.sha256()
        self._seed = seed
        self.timeline.later(self, PING_MS, self._ping)

    # Hosts.

    def world(self, host: str) -> SimWorld:
        """Start a new process on a host. The process before it must have ended."""
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
        """Return the world of the process that runs on a host."""
        return self._lives[host]

    def kill(self, host: str) -> None:
        """Kill the process. Its kernel resets its links, and then closes its listeners."""
        ports = {one.address.port for one in self._lives[host].listening.values() if one.is_open}
        now_ms = self.timeline.clock.monotonic_ms()
        self._listen_on[host] = (now_ms + self.chance.randint(0, LISTENS_ON_MS), ports)
        for link in self._end_life(host):
            if link.other is not None:
                link.way.put(End.RESET)

    def freeze(self, host: str) -> None:
        """Freeze the process. Its kernel still accepts links and receives bytes."""
        self._lives[host].freeze()

    def thaw(self, host: str) -> None:
        """Let the process continue. It handles due timers first, and then reads from its links."""
        world = self._lives[host]
        world.thaw()
        for link in list(self._links):
            if link.world is world:
                link.go_on()
        world.settle()

    def cut_power(self, host: str) -> None:
        """Cut the power of the machine. The host is silent until a new process starts on it."""
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

    # Faults of the network.

    def cut(self, source: str, target: str) -> None:
        """Deliver nothing in this direction from now on."""
        self.cuts.add((source, target))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Repair one direction between two hosts. Without arguments repair all directions and all
        routes, and let all host names resolve again."""
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
        """Drop every link between two hosts, as a middlebox can. Both ends see a reset."""
        for link in list(self._links):
            if link.other is not None and {link.host, link.other.host} == {one, two}:
                link.arrived(End.RESET)

    def is_open(self, source: str, target: str) -> bool:
        """Return True if bytes in this direction arrive."""
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
                # The other process is gone, and its host has power again. So its kernel answers
                # with a reset, because it does not know the link.
                link.arrived(End.RESET)
        self.timeline.later(self, PING_MS, self._ping)

    # Connection attempts.

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
        """Try to connect once, as if by sending a SYN."""
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
            # The process was killed, but its kernel still listens. No process accepts this link,
            # so it ends when the kernel closes the listening socket.
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
        # The kernel accepts the link. A frozen process learns of it only after it is thawed.
        if world.held is None:
            other.stand()
        else:
            world.soon(other.stand)
        link.world.later(self.delay_ms(), link.stand)

    def _listens_on(self, address: Address) -> bool:
        until_ms, ports = self._listen_on.get(address.host, (0, set()))
        return self.timeline.clock.monotonic_ms() < until_ms and address.port in ports

    # Random delays, and the trace of the run.

    def delay_ms(self) -> int:
        mix = self.mix
        is_late = mix.late and self.chance.random() < mix.late
        return self.chance.randint(*(mix.late_ms if is_late else mix.delay_ms))

    def note(self, *told: object) -> None:
        """Add one line to the trace."""
        self._trace.update(repr((self.timeline.clock.monotonic_ms(), *told)).encode())

    @property
    def trace_digest(self) -> str:
        """Return a digest of the trace. Two runs with the same digest were equal."""
        return self._trace.hexdigest()

    def gone(self, link: SimLink) -> None:
        """Remove a link that has no pending events."""
        self._links.pop(link, None)
