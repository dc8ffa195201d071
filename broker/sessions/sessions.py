"""All open connections of a broker, and the limits on them: how many, how fast, how silent.

Floor: sessions. A connection beyond a limit is closed at once; one that wastes its place is closed
by `sweep`. The limits are those of `limit_keys`, read anew each time, for some may change. What
limits new connections counts those of our own listeners apart: a flood of clients must not shut out
the mill's parts, which on one machine come from the same address.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.config import BrokerConfig

if TYPE_CHECKING:
    from broker.sessions.connection import Connection

SHRINK_AFTER_MS = 5_000
"""A connection silent for so long gives its read buffer back."""

RATE_WINDOW_MS = 1_000

OWN_LISTENERS = frozenset({"MILL", "BROKER"})
"""Where the mill's parts and other brokers come in; clients come in by the others."""


class Tally:
    """The connections that share the limits on how many are taken in."""

    def __init__(self) -> None:
        self.count = 0
        self.silent_count = 0
        """How many have not sent a byte yet."""
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


class Connections:
    """Whatever listener they came in by."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        """May be replaced; connections that are open stay."""
        self.open: dict[Connection, None] = {}
        self.buffer_bytes = 0
        self._clients, self._own = Tally(), Tally()

    def tally(self, listener_name: str) -> Tally:
        """What a connection of this listener is counted in."""
        return self._own if listener_name in OWN_LISTENERS else self._clients

    def admit(self, connection: Connection, now_ms: int) -> str:
        """Take a connection in; else the limit that it breaks."""
        tally, host = self.tally(connection.listener.name), connection.peer_host
        refusal = tally.refusal(self.config, host, now_ms)
        if not refusal:
            self.open[connection] = None
            tally.add(host)
        return refusal

    def spoke(self, connection: Connection) -> None:
        """One of them has sent its first byte."""
        self.tally(connection.listener.name).silent_count -= 1

    def account(self, added_bytes: int) -> str:
        """Note a change in what a connection holds; the limit if that is too much for all."""
        self.buffer_bytes += added_bytes
        bytes_max = self.config.queued_max_request_bytes
        if added_bytes > 0 and self.buffer_bytes > bytes_max:
            return f"queued.max.request.bytes {bytes_max} is reached by all connections"
        return ""

    def release(self, connection: Connection) -> None:
        """Count a connection out."""
        if connection in self.open:
            del self.open[connection]
            tally = self.tally(connection.listener.name)
            tally.remove(connection.peer_host, has_spoken=connection.has_spoken)

    def sweep(self, now_ms: int) -> None:
        """Close the connections whose time is over, and take memory from the silent ones."""
        for connection in list(self.open):
            silent_ms = now_ms - connection.last_active_ms
            if reason := self._overdue(connection, now_ms, silent_ms):
                connection.close(reason)
            elif silent_ms > self.config.connections_max_idle_ms and (
                connection.is_idle or connection.is_stalled
            ):
                connection.close("connections.max.idle.ms is over", is_logged=False)
            elif silent_ms > SHRINK_AFTER_MS:
                connection.shrink()

    def _overdue(self, connection: Connection, now_ms: int, silent_ms: int) -> str:
        config = self.config
        frame_ms_max = config.connection_frame_timeout_ms
        since_ms = connection.frame_since_ms
        if since_ms and now_ms - since_ms > frame_ms_max and not connection.is_paused:
            return f"a request took longer than connection.frame.timeout.ms {frame_ms_max}"
        first_ms_max = config.connection_first_byte_timeout_ms
        if not connection.has_spoken and silent_ms > first_ms_max:
            return f"nothing was sent for connection.first.byte.timeout.ms {first_ms_max}"
        return ""
