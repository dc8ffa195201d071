"""Asks the bundled brokers about replicas: how many partitions are out of sync, and which brokers
are needed for writes.

Every broker answers for the whole cluster, from the metadata that it has. The answer with the
newest metadata is used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.mill.parts import BROKER_PREFIX
from appliance.supervisor.effects import Readiness
from protocol.status import StatusUnavailable, fetch_status

STATUS_TIMEOUT_S = 2.0
"""The time-out in seconds for the `/status` of a broker, which can be frozen."""

Addresses = Mapping[str, tuple[str, int]]
"""The address of each part's `/status`, by the name of the part."""


@dataclass(frozen=True, slots=True)
class NeededReplicas:
    """The partitions that would accept no writes or have no leader if a broker were stopped."""

    count: int
    partitions: tuple[str, ...]
    """The names of some of these partitions."""

    def __str__(self) -> str:
        more = self.count - len(self.partitions)
        return ", ".join(self.partitions) + (f" and {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """The replicas of all partitions at one moment."""

    not_in_sync: int
    """The number of partitions of which not all replicas are in sync."""
    needed: Mapping[str, NeededReplicas]
    """The partitions that need each part. A part without an entry can be stopped."""


def statuses(addresses: Addresses) -> dict[str, dict[str, Any] | StatusUnavailable]:
    """Ask all brokers at the same time. This takes as long as the slowest answer, at most some
    seconds."""
    # Import this module only here, because most commands ask no broker.
    from concurrent.futures import ThreadPoolExecutor

    def ask(address: tuple[str, int]) -> dict[str, Any] | StatusUnavailable:
        try:
            return dict(fetch_status(*address, STATUS_TIMEOUT_S).details)
        except StatusUnavailable as error:
            return error

    if not addresses:
        return {}
    with ThreadPoolExecutor(len(addresses)) as threads:
        return dict(zip(addresses, threads.map(ask, addresses.values()), strict=True))


def copies_by(told: Iterable[Mapping[str, Any]]) -> ReplicaReport | None:
    """Return the report with the newest metadata in these answers; None if no broker is in
    service."""
    newest = _newest(told)
    if newest is None:
        return None
    found = newest["copies"]
    return ReplicaReport(
        found["not_in_sync"],
        {
            f"{BROKER_PREFIX}{node_id}": NeededReplicas(one["count"], tuple(one["partitions"]))
            for node_id, one in found["needed"].items()
        },
    )


def _newest(told: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    known = [one for one in told if "copies" in one]
    return max(known, key=lambda one: int(one["metadata_offset"]), default=None)


def readiness(addresses: Addresses) -> Readiness:
    """Return how many partitions are out of sync, and which part is the active controller.

    The number is unknown unless all of these brokers have answered and have a connection to the
    controller, because other brokers can have newer metadata. It is unknown too while a voter is
    out of service, also a voter on another host.
    """
    known = {}
    for part, one in statuses(addresses).items():
        if isinstance(one, StatusUnavailable):
            return Readiness(None, f"the status of {part} ({one})")
        if "copies" not in one:
            return Readiness(None, f"{part}, which is not in service yet")
        # Brokers of 1.0.0-rc1 do not report this. They are all on one machine.
        if not one.get("is_current", True):
            return Readiness(None, f"{part}, which has no connection to the controller")
        known[part] = one
    newest = _newest(known.values())
    if newest is None:
        return Readiness(None, "brokers")
    if away := _away(newest):
        return Readiness(None, ", ".join(away))
    active = [part for part, one in known.items() if one["is_controller"]]
    controller = active[0] if len(active) == 1 else None
    return Readiness(newest["copies"]["not_in_sync"], "", controller)


def _away(details: Mapping[str, Any]) -> list[str]:
    """Return the voters that are not in service, each with its state."""
    voters = details.get("voters", ())
    rows = {one["node_id"]: one for one in details.get("brokers", ())}
    found = []
    for number in sorted(voters):
        row = rows.get(number)
        if row is None or row["is_fenced"]:
            found.append(f"{BROKER_PREFIX}{number}, which is out of service")
        elif row["is_stopping"]:
            found.append(f"{BROKER_PREFIX}{number}, which is stopping")
    return found


def copies(addresses: Addresses) -> ReplicaReport | None:
    """Ask all brokers. Return the report with the newest metadata; None if no broker answers."""
    told = statuses(addresses).values()
    return copies_by(one for one in told if not isinstance(one, StatusUnavailable))
