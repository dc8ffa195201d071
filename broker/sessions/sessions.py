"""All open sessions of a broker, and the limits on their number, rate and silence.

This module is pure. A connection beyond a limit is closed at once. `sweep` closes the connections
that exceed a time limit. The limits are in `limit_keys`. They are read on every use, because some
of them can change. The limits on new connections count the internal listeners separately. Otherwise
a flood of clients could block the mill's own parts, which have the same address on one machine.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from broker.config import BROKER_LISTENER, MILL_LISTENER, BrokerConfig, InForce
from broker.quotas.connection_rates import ConnectionRates
from broker.sessions.login import CredentialKey, Login
from broker.sessions.reception import CountedSession

SHRINK_AFTER_MS = 5_000
"""The milliseconds of silence after which a connection releases its read buffer."""

RATE_WINDOW_MS = 1_000

SILENT_PEERS_MAX = 64
"""The largest number of connections from one address to the listener for brokers, if it has TLS,
whose handshake is not complete. Anyone can open such connections, and together they could use up
`max.silent.connections`. A broker opens fewer than ten connections at a time to another broker."""

POTS = (MILL_LISTENER, "NET", BROKER_LISTENER)
"""The listeners whose connections are counted separately: for the mill's parts, for clients over
TLS, and for other brokers."""


class SweptSession(CountedSession, Protocol):
    """A session. `sweep` uses these members."""

    number: int
    """A number that rises in the order in which sessions were accepted."""

    login: Login | None
    """The client's login, on a listener that requires one."""

    @property
    def last_active_ms(self) -> int:
        """The monotonic time at which the session last received or sent something."""

    @property
    def frame_since_ms(self) -> int:
        """The monotonic time at which the unfinished frame in the buffer began; 0 if there is
        none."""

    @property
    def is_paused(self) -> bool:
        """True if the session has paused reading."""

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress."""

    @property
    def is_stalled(self) -> bool:
        """True if the peer does not read its answers."""

    @property
    def is_throttled(self) -> bool:
        """True while the session pauses because of a quota."""

    def end_throttle(self) -> None:
        """End the pause because of a quota."""

    def shrink(self) -> None:
        """Release the read buffer."""

    def stop_reading(self) -> None:
        """Read no more requests."""

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """Close the connection."""


class ConnectionCounts:
    """The numbers of connections that share the limits on new connections."""

    def __init__(self) -> None:
        self.silent_per_host: Counter[str] = Counter()
        self.count = 0
        self.silent_count = 0
        """The number of connections that have not sent a byte, or have not logged in, yet."""
        self.buffer_bytes = 0
        """The size in bytes of their unfinished and waiting requests."""
        self._per_host: Counter[str] = Counter()
        self._window_start_ms = 0
        self._window_count = 0

    def refusal(self, config: BrokerConfig, host: str, now_ms: int) -> str:
        """Return the limit that one more connection from this host exceeds, or an empty string.

        Each call adds one new connection to the rate.
        """
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

    def spoke(self, host: str) -> None:
        """Record that a connection from this host is not silent any more."""
        self.silent_count -= 1
        self.silent_per_host[host] -= 1
        if not self.silent_per_host[host]:
            del self.silent_per_host[host]

    def add(self, host: str) -> None:
        """Add a connection, which has not sent anything yet."""
        self.count += 1
        self.silent_count += 1
        self.silent_per_host[host] += 1
        self._per_host[host] += 1

    def remove(self, host: str, *, has_spoken: bool) -> None:
        """Remove a connection."""
        self.count -= 1
        if not has_spoken:
            self.spoke(host)
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]


class Sessions:
    """The sessions of all listeners."""

    def __init__(self, settings: InForce) -> None:
        self.open: dict[SweptSession, None] = {}
        self._admitted_count = 0
        self._settings = settings
        self._clients = ConnectionCounts()
        self._pots = {name: ConnectionCounts() for name in POTS}
        self.rates = ConnectionRates()
        """The new connections of addresses with a quota."""

    @property
    def buffer_bytes(self) -> int:
        """The size in bytes of all unfinished and waiting requests."""
        return sum(tally.buffer_bytes for tally in (self._clients, *self._pots.values()))

    def tally(self, listener_name: str) -> ConnectionCounts:
        """Return the counts that include the sessions of this listener."""
        return self._pots.get(listener_name, self._clients)

    def admit(self, session: SweptSession, now_ms: int) -> str:
        """Admit a session and return an empty string, or return the limit that it exceeds."""
        tally, host = self.tally(session.listener_name), session.peer_host
        refusal = ""
        if session.listener_name not in (MILL_LISTENER, BROKER_LISTENER):
            # This limit is the first one, so that a flood of one address does not use up the
            # limits of all.
            refusal = self.rates.refusal(host, now_ms)
        refusal = (
            refusal
            or tally.refusal(self._settings.config, host, now_ms)
            or self._flood_of_peers(session.listener_name, host)
        )
        if not refusal:
            self._admitted_count += 1
            session.number = self._admitted_count
            self.open[session] = None
            tally.add(host)
        return refusal

    def spoke(self, session: CountedSession) -> None:
        """Record that `has_spoken` of a session has become true."""
        self.tally(session.listener_name).spoke(session.peer_host)

    def _flood_of_peers(self, listener_name: str, host: str) -> str:
        """Return a text if this address has reached its limit of unfinished handshakes with the
        listener for brokers; otherwise an empty text."""
        listener = self._settings.config.listeners.get(listener_name)
        if listener_name != BROKER_LISTENER or listener is None or not listener.has_tls:
            return ""
        if self.tally(listener_name).silent_per_host.get(host, 0) < SILENT_PEERS_MAX:
            return ""
        return f"{SILENT_PEERS_MAX} connections of {host} have not completed their TLS handshake"

    def account(self, session: CountedSession, added_bytes: int) -> str:
        """Add a change of a session's memory in bytes. Return the limit that the total exceeds, or
        an empty string."""
        tally = self.tally(session.listener_name)
        tally.buffer_bytes += added_bytes
        bytes_max = self._settings.config.queued_max_request_bytes
        if added_bytes > 0 and tally.buffer_bytes > bytes_max:
            return f"queued.max.request.bytes {bytes_max} is reached by all connections"
        return ""

    def release(self, session: SweptSession) -> None:
        """Remove a session from the counts."""
        if session in self.open:
            del self.open[session]
            tally = self.tally(session.listener_name)
            tally.remove(session.peer_host, has_spoken=session.has_spoken)

    def sweep(self, now_ms: int) -> None:
        """Close the sessions that exceed a time limit, and release the read buffers of silent
        sessions."""
        config = self._settings.config
        idle_ms_max = config.connections_max_idle_ms
        first_ms_max = config.connection_first_byte_timeout_ms
        for session in list(self.open):
            if session.is_throttled:
                # The broker itself keeps the client from sending.
                continue
            silent_ms = now_ms - session.last_active_ms
            if reason := self._overdue(session, now_ms):
                session.close(reason)
            elif not session.has_spoken and silent_ms > first_ms_max:
                # Log no warning, because kafkajs connects before it has anything to send.
                session.close("no byte within connection.first.byte.timeout.ms", is_logged=False)
            elif silent_ms > idle_ms_max and (session.is_idle or session.is_stalled):
                session.close("idle for longer than connections.max.idle.ms", is_logged=False)
            elif silent_ms > SHRINK_AFTER_MS:
                session.shrink()

    def end_throttles(self) -> None:
        """End all pauses, because the quotas have changed. The next requests are charged by the new
        quotas."""
        for session in list(self.open):
            session.end_throttle()

    def end_logins(self, keys: set[CredentialKey]) -> None:
        """Close the sessions that have logged in with one of these credentials."""
        for session in list(self.open):
            if session.login is not None and session.login.uses(keys):
                session.close("the credential of the user was changed or removed")

    def _overdue(self, session: SweptSession, now_ms: int) -> str:
        if session.login is not None and (reason := session.login.overdue(now_ms)):
            return reason
        frame_ms_max = self._settings.config.connection_frame_timeout_ms
        since_ms = session.frame_since_ms
        if since_ms and now_ms - since_ms > frame_ms_max and not session.is_paused:
            return f"a request took longer than connection.frame.timeout.ms {frame_ms_max}"
        return ""
