"""The replication throttle of this broker, for the copies that it sends or those that it receives.

A replica is throttled if `*.replication.throttled.replicas` of its topic names it and the broker
has a rate (`replication/throttle` has the bucket). The settings are read at every use, so a change
applies at once, even to a running copy. Callers use the limit only for copies. Replicas that are in
sync, or for which the high watermark waits, are never limited.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config import BrokerConfig, InForce, LogConfig
from broker.replicas.replica import Replica
from broker.replication.throttle import UNLIMITED, CopyThrottle, is_listed
from broker.world import Clock


class CopyLimit:
    """The limit of one direction."""

    def __init__(
        self,
        settings: InForce,
        clock: Clock,
        rate_of: Callable[[BrokerConfig], int],
        list_of: Callable[[LogConfig], str],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._rate_of = rate_of
        self._list_of = list_of
        self._throttle = CopyThrottle()

    @classmethod
    def of_leader(cls, settings: InForce, clock: Clock) -> CopyLimit:
        """Return the limit on the copies that this broker sends to followers."""
        return cls(
            settings,
            clock,
            lambda config: config.leader_replication_throttled_rate,
            lambda config: config.leader_replication_throttled_replicas,
        )

    @classmethod
    def of_follower(cls, settings: InForce, clock: Clock) -> CopyLimit:
        """Return the limit on the copies that this broker fetches from leaders."""
        return cls(
            settings,
            clock,
            lambda config: config.follower_replication_throttled_rate,
            lambda config: config.follower_replication_throttled_replicas,
        )

    def is_limited(self, replica: Replica) -> bool:
        """Return True if the settings limit the copies of this replica."""
        config = self._settings.config
        return self._rate_of(config) != UNLIMITED and is_listed(
            self._list_of(replica.log.config), replica.index, config.node_id
        )

    def room(self) -> int:
        """Return the number of bytes that limited replicas can copy now; 0 if they must wait."""
        return self._throttle.room(self._rate, self._clock.monotonic_ms())

    def take(self, size_bytes: int) -> None:
        """Take bytes that a limited replica has copied out of the bucket."""
        self._throttle.take(size_bytes, self._rate, self._clock.monotonic_ms())

    def wait_ms(self) -> int | None:
        """Return the milliseconds until limited replicas can copy; None if the rate is 0."""
        return self._throttle.wait_ms(self._rate, self._clock.monotonic_ms())

    @property
    def _rate(self) -> int:
        return self._rate_of(self._settings.config)
