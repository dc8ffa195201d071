"""The rate of new connections of each address, and its quota (KIP-612).

This module is pure: time comes as an argument, in monotonic milliseconds. A connection that is
refused does not count, as in Kafka, so an address at its quota is let in at exactly that rate.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.quotas.rates import KeptRates, SampledRate
from protocol.security.address import normal_host
from protocol.security.quota import CONNECTION_RATE, IP, QuotaEntity


class ConnectionRates:
    """The quotas of addresses in force, and the rates of the addresses that have one."""

    def __init__(self) -> None:
        self._quotas: Mapping[str | None, float] = {}
        """The connections per second by address. None has the default of all others."""
        self._rates: KeptRates[str, SampledRate] = KeptRates(SampledRate)

    def use(self, values: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Put other quotas in force. The rates so far count for them too."""
        self._quotas = {
            entity[0][1]: quotas[CONNECTION_RATE]
            for entity, quotas in values.items()
            if entity[0][0] == IP
        }

    def refusal(self, host: str, now_ms: int) -> str:
        """Count a new connection. Return an empty string, or the limit that it exceeds."""
        if not self._quotas:
            return ""
        address = normal_host(host)
        quota = self._quotas.get(address, self._quotas.get(None))
        if quota is None:
            return ""
        rate = self._rates.of(address, now_ms)
        rate.record(1, now_ms)
        if not rate.throttle_ms(quota, now_ms):
            return ""
        rate.record(-1, now_ms)
        return f"{CONNECTION_RATE} {quota:g} of {address} is reached"
