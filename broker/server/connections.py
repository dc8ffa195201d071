"""All open connections of a broker, and the limits on them: how many, how fast, how silent.

Floor: server. A connection beyond a limit is closed at once; one that wastes its place is closed by
`sweep`. The limits are those of `limit_keys`, read anew each time, for some may change.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.config import BrokerConfig

if TYPE_CHECKING:
    from broker.server.connection import Connection

SHRINK_AFTER_MS = 5_000
"""A connection silent for so long gives its read buffer back."""

RATE_WINDOW_MS = 1_000


class Connections:
    """Whatever listener they came in by."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        """May be replaced; connections that are open stay."""
        self.open: dict[Connection, None] = {}
        self.buffer_bytes = 0
        self.silent_count = 0
        """How many have not sent a byte yet."""
        self._per_host: Counter[str] = Counter()
        self._window_start_ms = 0
        self._window_count = 0

    def admit(self, connection: Connection, now_ms: int) -> str:
        """Take a connection in; else the limit that it breaks."""
        refusal = self._refusal(connection.peer_host, now_ms)
        if not refusal:
            self.open[connection] = None
            self.silent_count += 1
            self._per_host[connection.peer_host] += 1
        return refusal

    def _refusal(self, host: str, now_ms: int) -> str:
        config = self.config
        if now_ms - self._window_start_ms >= RATE_WINDOW_MS:
            self._window_start_ms, self._window_count = now_ms, 0
        self._window_count += 1
        if self._window_count > config.max_connection_creation_rate:
            return f"max.connection.creation.rate {config.max_connection_creation_rate} is reached"
        if len(self.open) >= config.max_connections:
            return f"max.connections {config.max_connections} is reached"
        if self._per_host.get(host, 0) >= config.max_connections_per_ip:
            return f"max.connections.per.ip {config.max_connections_per_ip} is reached"
        if self.silent_count >= config.max_silent_connections:
            return f"max.silent.connections {config.max_silent_connections} is reached"
        return ""

    def spoke(self) -> None:
        """One of them has sent its first byte."""
        self.silent_count -= 1

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
            self.silent_count -= not connection.has_spoken
            host = connection.peer_host
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

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
