"""Names the hosts whose brokers must still restart, after a command restarted the one of this host.

Each host restarts its own broker. Its supervisor waits for the brokers of the other hosts, but
nothing restarts them from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.cli.other_hosts import own_status
from appliance.mill.settings import Mill
from appliance.output import duration_text


@dataclass(frozen=True, slots=True)
class HostsRound:
    """The other hosts of a mill in a rolling restart, with what the broker of this host knew about
    their brokers before it restarted."""

    hosts: Mapping[int, str]
    """The hosts of the other brokers, by broker."""
    ages_ms: Mapping[int, int]
    """For how long brokers have been registered, if they registered after the one of this host.
    Nothing says whether that was in this round."""
    is_controller_here: bool

    @property
    def notes(self) -> list[str]:
        """Sentences before the restart."""
        if not self.is_controller_here:
            return []
        return [
            "the broker of this host is the active controller: take this host last, so that the"
            " controller changes only once"
        ]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The other brokers as data."""
        return [
            {"broker": one, "host": host, "registered_ago_ms": self.ages_ms.get(one)}
            for one, host in self.hosts.items()
        ]

    def line(self, command: str, controller: int | None) -> str:
        """Return the sentence after the restart. `command` is what to type on the other hosts.
        `controller` is the active controller now; None if it is unknown."""
        ordered = sorted(self.hosts, key=lambda one: (one == controller, one))
        named = ", then ".join(self._named(one, is_last=one == controller) for one in ordered)
        return f"left: {named}. Type there `{command}`, on one host after the other"

    def _named(self, broker: int, *, is_last: bool) -> str:
        text = f"broker {broker} on {self.hosts[broker]}"
        if is_last:
            text += " (the active controller, so last)"
        if broker in self.ages_ms:
            ago = duration_text(self.ages_ms[broker])
            text += f", unless its start {ago} ago was in this round"
        return text


def hosts_round(mill: Mill) -> HostsRound | None:
    """Ask the broker of this host about the others; None if all brokers are on one machine."""
    hosts, own = mill.config.cluster.hosts, mill.placement.broker
    if hosts is None or own is None:
        return None
    details = _details(mill)
    ages_ms = {
        one["node_id"]: one["registered_ago_ms"]
        for one in details.get("brokers", ())
        if one.get("registered_ago_ms") is not None
    }
    others = {number: host for number, host in hosts.items() if number != own}
    return HostsRound(others, ages_ms, details.get("controller_id") == own)


def controller_of(mill: Mill) -> int | None:
    """Return the active controller, as the broker of this host knows it; None if it is unknown."""
    found: int | None = _details(mill).get("controller_id")
    return found


def _details(mill: Mill) -> Mapping[str, Any]:
    status = own_status(mill)
    return {} if status is None else status.details
