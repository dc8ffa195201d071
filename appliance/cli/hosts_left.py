"""Says on which other hosts the brokers are left, after a command restarted the one of this host.

Each host restarts its own broker. Its supervisor waits for the brokers of the other hosts, but
nothing restarts them from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.mill.parts import BROKER_PREFIX
from appliance.mill.settings import Mill
from appliance.output import duration_text
from protocol.status import StatusUnavailable, fetch_status

ROUND_MS = 3_600_000
"""A broker that has registered within this time, in milliseconds, counts as restarted in this
round."""

STATUS_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class HostsRound:
    """The other hosts of a mill in a rolling restart: what the broker of this host knew of their
    brokers before it restarted."""

    hosts: Mapping[int, str]
    """The hosts of the other brokers, by broker."""
    ages_ms: Mapping[int, int]
    """For how long brokers have been registered, if they registered after the one of this host."""
    is_controller_here: bool

    @property
    def left(self) -> list[int]:
        """The brokers that were not restarted in this round."""
        return [one for one in self.hosts if self.ages_ms.get(one, ROUND_MS) >= ROUND_MS]

    @property
    def notes(self) -> list[str]:
        """Sentences before the restart."""
        if not self.is_controller_here or not self.left:
            return []
        return [
            "the broker of this host is the active controller: the controller changes only once if"
            " this host comes last"
        ]

    def lines(self, command: str, controller: int | None) -> list[str]:
        """Return the sentences after the restart. `command` is what to type on the other hosts.
        `controller` is the active controller now; None if it is unknown."""
        done = [one for one in self.hosts if one not in self.left]
        lines = []
        if done:
            ages = ", ".join(
                f"broker {one} on {self.hosts[one]} ({duration_text(self.ages_ms[one])} ago)"
                for one in done
            )
            lines.append(f"restarted within the last hour: {ages}")
        if not self.left:
            return [*lines, "no host is left"]
        ordered = sorted(self.left, key=lambda one: (one == controller, one))
        named = ", then ".join(
            f"broker {one} on {self.hosts[one]}"
            + (" (the active controller, so last)" if one == controller and ordered[1:] else "")
            for one in ordered
        )
        return [*lines, f"left: {named}. Type there `{command}`, on one host after the other"]


def hosts_round(mill: Mill) -> HostsRound | None:
    """Ask the broker of this host about the others; None if all brokers are on one machine."""
    hosts, own = mill.config.cluster.hosts, mill.placement.broker
    if hosts is None or own is None:
        return None
    details = _details(mill, own)
    ages_ms = {
        one["node_id"]: one["registered_ago_ms"]
        for one in details.get("brokers", ())
        if one.get("registered_ago_ms") is not None
    }
    others = {number: host for number, host in hosts.items() if number != own}
    return HostsRound(others, ages_ms, details.get("controller_id") == own)


def controller_of(mill: Mill) -> int | None:
    """Return the active controller, as the broker of this host knows it; None if it is unknown."""
    own = mill.placement.broker
    found: int | None = None if own is None else _details(mill, own).get("controller_id")
    return found


def _details(mill: Mill, own: int) -> Mapping[str, Any]:
    part = mill.part(f"{BROKER_PREFIX}{own}")
    if part is None:
        return {}
    try:
        return fetch_status(part.host, part.port, STATUS_TIMEOUT_S).details
    except StatusUnavailable:
        return {}
