"""All open sessions of a broker, and the limits on them: how many, how fast, how silent.

Floor: sessions. Pure. A connection beyond a limit is closed at once; one that wastes its place is
closed by `sweep`. The limits are those of `limit_keys`, read anew each time, for some may change.
What limits new connections counts those of our own listeners apart: a flood of clients must not
shut out the mill's parts, which on one machine come from the same address.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from broker.config import BROKER_LISTENER, BrokerConfig, InForce
from broker.sessions.reception import Counted

SHRINK_AFTER_MS = 5_000
"""A connection silent for so long gives its read buffer back."""

RATE_WINDOW_MS = 1_000

POTS = ("MILL", BROKER_LISTENER)
"""Listeners that are counted for themselves: the mill's parts and other brokers. Clients come in by
all the others."""


class Seated(Counted, Protocol):
    """A session as `sweep` sees it."""

    number: int
    """Rises in the order in which sessions were taken in."""

    @property
    def last_active_ms(self) -> int:
        """When something was last heard of it, or sent."""

    @property
    def frame_since_ms(self) -> int:
        """When the unfinished frame in its buffer began; 0 without one."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read from it for now."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""

    @property
    def is_stalled(self) -> bool:
        """Whether it does not take its answers."""

    def shrink(self) -> None:
        """Give back memory."""

    def stop_reading(self) -> None:
        """Take no more requests."""

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """End it."""


class Tally:
    """The connections that share the limits on how many are taken in."""

    def __init__(self) -> None:
        self.count = 0
        self.silent_count = 0
        """How many have not sent a byte yet."""
        self.buffer_bytes = 0
        """What their unfinished and waiting requests take."""
        self._per_host: Counter[str] = Counter()
        self._window_start_ms = 0
        self._window_count = 0

    def refusal(self, config: BrokerConfig, host: str, now_ms: int) -> str:
        """The limit that one more from this host would break; it counts as an attempt."""
        if now_ms - self._window_start_ms >= RATE_WINDOW_MS:
            self._window_start_ms, self._window_count = now_ms, 0
        self._window_count += 1
        if self._window_count > config.max_connection_creation_rate:
            return f"max.connection.creation.rate {config.max_connection_creation_rate} is reached"
        if self.count >= config.max_connections:
            return f"max.connections {config.max_connections} is reached"
        if self._per_host.get(host, 0) >= config.max_connections_per_ip:
            return f"max.connections.per.ip {config.max_connections_per_ip} is reached"
        if self.silent_count >= config.max_silent_connections:
            return f"max.silent.connections {config.max_silent_connections} is reached"
        return ""

    def add(self, host: str) -> None:
        """Count one in; it has said nothing yet."""
        self.count += 1
        self.silent_count += 1
        self._per_host[host] += 1

    def remove(self, host: str, *, has_spoken: bool) -> None:
        """Count one out."""
        self.count -= 1
        self.silent_count -= not has_spoken
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]


class Sessions:
    """Whatever listener they came in by."""

    def __init__(self, settings: InForce) -> None:
        self.open: dict[Seated, None] = {}
        self._admitted_count = 0
        self._settings = settings
        self._clients = Tally()
        self._pots = {name: Tally() for name in POTS}

    @property
    def buffer_bytes(self) -> int:
        """What the requests of all sessions take that are unfinished or wait."""
        return sum(tally.buffer_bytes for tally in (self._clients, *self._pots.values()))

    def tally(self, listener_name: str) -> Tally:
        """What a session of this listener is counted in."""
        return self._pots.get(listener_name, self._clients)

    def admit(self, session: Seated, now_ms: int) -> str:
        """Take a session in; else the limit that it breaks."""
        tally, host = self.tally(session.listener_name), session.peer_host
        refusal = tally.refusal(self._settings.config, host, now_ms)
        if not refusal:
            self._admitted_count += 1
            session.number = self._admitted_count
            self.open[session] = None
            tally.add(host)
        return refusal

    def spoke(self, session: Counted) -> None:
        """One of them has sent its first byte."""
        self.tally(session.listener_name).silent_count -= 1

    def account(self, session: Counted, added_bytes: int) -> str:
        """Note a change in what a session holds; the limit if that is too much for all."""
        tally = self.tally(session.listener_name)
        tally.buffer_bytes += added_bytes
        bytes_max = self._settings.config.queued_max_request_bytes
        if added_bytes > 0 and tally.buffer_bytes > bytes_max:
            return f"queued.max.request.bytes {bytes_max} is reached by all connections"
        return ""

    def release(self, session: Seated) -> None:
        """Count a session out."""
        if session in self.open:
            del self.open[session]
            tally = self.tally(session.listener_name)
            tally.remove(session.peer_host, has_spoken=session.has_spoken)

    def sweep(self, now_ms: int) -> None:
        """Close the sessions whose time is over, and take memory from the silent ones."""
        config = self._settings.config
        idle_ms_max = config.connections_max_idle_ms
        first_ms_max = config.connection_first_byte_timeout_ms
        for session in list(self.open):
            silent_ms = now_ms - session.last_active_ms
            if reason := self._overdue(session, now_ms):
                session.close(reason)
            elif not session.has_spoken and silent_ms > first_ms_max:
                # kafkajs connects before it has anything to ask, so this is no cause for a warning.
                session.close("connection.first.byte.timeout.ms is over", is_logged=False)
            elif silent_ms > idle_ms_max and (session.is_idle or session.is_stalled):
                session.close("connections.max.idle.ms is over", is_logged=False)
            elif silent_ms > SHRINK_AFTER_MS:
                session.shrink()

    def _overdue(self, session: Seated, now_ms: int) -> str:
        frame_ms_max = self._settings.config.connection_frame_timeout_ms
        since_ms = session.frame_since_ms
        if since_ms and now_ms - since_ms > frame_ms_max and not session.is_paused:
            return f"a request took longer than connection.frame.timeout.ms {frame_ms_max}"
        return ""
