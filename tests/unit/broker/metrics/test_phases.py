"""The broker's own measurements, from their source to `/metrics` and `/status`.

Requests come in on a connection of a whole broker. The test sets the time, and each reading of the
clock adds a microsecond.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from broker.node.status import BrokerStatus
from broker.real.connection import SocketLink
from broker.sessions.session import Session
from protocol.messages.api import ApiKey
from protocol.messages.headers import encode_request
from protocol.messages.metadata import MetadataRequest
from tests.harness.wait import wait_until
from tests.harness.wire import batch_of, produce_request
from tests.sim.world import SimWorld
from tests.unit.broker.rig import SYNC_NS, Rig
from tests.unit.broker.sessions.test_session import NEVER_COLD, Transport

MS = 1_000_000
US = 1_000

_PHASE = re.compile(r'_request_seconds_sum\{api="(\w+)",phase="(\w+)"\} ([0-9.]+)')
_PLAIN = re.compile(r"^millrace_broker_(\w+) ([0-9.]+)$", re.MULTILINE)


class Ticks:
    """The rig's clock for durations: the test advances it, and each reading advances it a
    little."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        world.look_ns = US

    @property
    def now_ns(self) -> int:
        return self._world.ns

    @now_ns.setter
    def now_ns(self, now_ns: int) -> None:
        self._world.ns = now_ns


@pytest.fixture
def ticks(rig: Rig) -> Ticks:
    return Ticks(rig.world)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(max_connections=1)
    rig.create("logs")
    # By default, only one request in sixteen is timed.
    rig.broker.metrics.times_of(ApiKey.PRODUCE).mask = 0
    yield rig


class Peer:
    """The client's end of a connection to the broker."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        ours, self.socket = socket.socketpair()
        ours.setblocking(False)
        self.socket.setblocking(False)
        transport: Any = Transport(ours)
        self.transport = transport
        self.loop = asyncio.new_event_loop()
        self.session = Session(rig.broker.listeners.receptions["HOST"])
        config = rig.broker.settings.config
        self.link = SocketLink(
            self.loop, self.session, NEVER_COLD, config.socket_request_max_bytes,
            config.connection_max_unread_bytes,
        )  # fmt: skip
        self.link.connection_made(transport)

    def stuff(self) -> None:
        """Fill the socket, so that no answer can be written."""
        with suppress(BlockingIOError):
            while True:
                self.transport.socket.send(bytes(1 << 16))

    def take_all(self) -> None:
        """Read from the socket until every answer has left."""

        def has_left() -> bool:
            with suppress(BlockingIOError):
                while self.socket.recv(1 << 16):
                    pass
            self.loop.run_until_complete(asyncio.sleep(0))
            self.rig.turn()
            return self.session.is_idle

        wait_until(has_left, 20, "the answers leave")

    def arrive(self, data: bytes) -> None:
        """Deliver one read of the loop."""
        self.link.get_buffer(-1)[: len(data)] = data
        self.link.buffer_updated(len(data))

    def close(self) -> None:
        self.session.close("", is_logged=False)
        self.transport.socket.close()
        self.socket.close()
        self.loop.close()


def text(rig: Rig) -> str:
    return BrokerStatus(rig.broker, 0).metrics()


def details(rig: Rig) -> Any:
    return BrokerStatus(rig.broker, 0).status().details


def plain(rig: Rig) -> dict[str, float]:
    """Return every number at `/metrics` that has no labels."""
    return {name: float(value) for name, value in _PLAIN.findall(text(rig))}


def produce() -> bytes:
    return encode_request(produce_request("logs", batch_of([b"x"]), required_acks=-1), 9, 1, "p")


def metadata() -> bytes:
    return encode_request(MetadataRequest(topics=None), 9, 2, "p")


def test_every_phase_of_a_request_is_timed_where_it_happens(rig: Rig, ticks: Ticks) -> None:
    peer = Peer(rig)
    peer.stuff()
    peer.arrive(produce() + metadata())
    assert plain(rig)["parked_produces"] == details(rig)["parked_produces"] == 1
    # The Produce waits for the disk, and the Metadata waits for the Produce.
    ticks.now_ns += 3 * MS
    rig.flusher.sync()
    rig.turn()
    assert plain(rig)["parked_produces"] == details(rig)["parked_produces"] == 0
    ticks.now_ns += 400 * MS
    peer.take_all()
    found = {(api, phase): float(sum_s) * 1e3 for api, phase, sum_s in _PHASE.findall(text(rig))}
    wanted_ms = {
        ("produce", "queue"): 0,
        ("produce", "local"): 0,
        ("produce", "remote"): 3,
        ("produce", "send"): 400,
        ("metadata", "queue"): 3,
        ("metadata", "local"): 0,
        ("metadata", "remote"): 0,
        ("metadata", "send"): 400,
    }
    own = {one: sum_ms for one, sum_ms in found.items() if one[0] in ("produce", "metadata")}
    assert own.keys() == wanted_ms.keys()
    for one, sum_ms in own.items():
        assert wanted_ms[one] <= sum_ms < wanted_ms[one] + 1, one
    rows = {one["api"]: one for one in details(rig)["apis"]}
    for (api, phase), least_ms in wanted_ms.items():
        assert least_ms <= rows[api][f"{phase}_us"] / 1e3 < least_ms + 1, (api, phase)
    assert own["produce", "local"] > 0 and own["metadata", "local"] > 0
    peer.close()


def test_every_sync_is_timed(rig: Rig) -> None:
    before = plain(rig)
    rig.ask(produce_request("logs", batch_of([b"x"]), required_acks=-1), 9)
    after = plain(rig)
    assert after["flush_seconds_count"] == before["flush_seconds_count"] + 1
    assert after["flush_seconds_sum"] - before["flush_seconds_sum"] == pytest.approx(SYNC_NS / 1e9)
    mean_us = 1_000_000 * after["flush_seconds_sum"] / after["flush_seconds_count"]
    assert details(rig)["flush_us"] == int(mean_us)


def test_connections_that_are_refused_are_counted(rig: Rig) -> None:
    kept = Peer(rig)
    refused = Peer(rig)
    assert refused.transport.is_aborted and not kept.transport.is_aborted
    found = plain(rig)
    names = ("connections", "connections_total", "connections_refused_total")
    assert [found[name] for name in names] == [1, 1, 1]
    refused.close()
    kept.close()
    assert plain(rig)["connections"] == 0


def test_the_lateness_of_the_loop_is_timed(rig: Rig, ticks: Ticks) -> None:
    timer = rig.broker.alarm
    timer.stop()
    before = plain(rig)["loop_late_seconds_count"]
    timer.wake_by(rig.clock.monotonic_ms())
    ticks.now_ns += 90 * MS

    rig.world.run_for(1)
    assert plain(rig)["loop_late_seconds_count"] == before + 1
    assert 88_000 < details(rig)["loop_late_us_max"] < 91_000
    assert 88_000 < details(rig)["loop_late_us_p99"] < 91_000
