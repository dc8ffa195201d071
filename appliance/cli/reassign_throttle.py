"""The throttle of `millrace reassign`: set with a plan, and removed when no partition moves any
more."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.cluster import with_cluster
from appliance.output import CommandError, Exit, counted, duration_text, say, size_text

if TYPE_CHECKING:
    from appliance.kafka.reassign import ClusterReplicas
    from appliance.kafka.reassignment_files import Targets
    from appliance.kafka.throttles import ThrottlePlan
    from protocol.client.cluster import Cluster
    from protocol.copy_progress import CopyEstimate


ThrottleOption = Annotated[
    str | None,
    typer.Option(
        "--throttle", help="The most bytes a second that a broker sends or receives for copies."
    ),
]
ForceCopiesOption = Annotated[
    bool, typer.Option("--force", help="Start even if a disk is too small.")
]


def parse_rate(text: str) -> int:
    """Return the bytes a second of `--throttle`. Raises CommandError."""
    from protocol.units import parse_size_bytes

    try:
        rate = parse_size_bytes(text)
    except ValueError as error:
        raise CommandError(f"--throttle: {error}", Exit.USAGE) from error
    if rate < 1:
        raise CommandError(
            f"--throttle: found {text}, expected at least 1 byte a second", Exit.USAGE
        )
    return rate


def copies_text(estimate: "CopyEstimate") -> str:
    """Return a text with the progress of the copies and the time when they can be complete."""
    to_go = f"{size_text(estimate.to_go)} to copy"
    if estimate.rate is None or estimate.writes is None:
        return to_go
    at_rate = f"{to_go} at {rate_text(estimate.rate)}"
    if estimate.is_endless:
        return (
            f"{at_rate}: the copies never end at this rate, because writes add "
            f"{rate_text(estimate.writes)}"
        )
    if estimate.eta_s is None:
        return f"{at_rate}, time left unknown"
    return f"{at_rate}, about {duration_text(estimate.eta_s * 1_000)} left"


def rate_text(bytes_per_s: float) -> str:
    """Format a rate."""
    if bytes_per_s < 1 << 20:
        return f"{bytes_per_s:,.0f} bytes/s"
    return f"{size_text(int(bytes_per_s))}/s"


@dataclass(frozen=True, slots=True)
class Limits:
    """The throttle of one plan."""

    plan: "ThrottlePlan"
    rate: int

    @classmethod
    def of(cls, found: "ClusterReplicas", new: "Targets", rate: int) -> "Limits":
        """Return the throttle for new targets, and for all partitions that already move."""
        from appliance.kafka.throttles import plan_throttle

        current = {tp: one.replicas for tp, one in found.partitions()}
        return cls(plan_throttle(found.moving, new, current, found.brokers), rate)

    @property
    def sentences(self) -> list[str]:
        """Return sentences that describe the throttle before it is set."""
        return [
            f"copies are limited to {rate_text(self.rate)} for each broker and direction; "
            "replicas in sync are not",
            *(
                f"topic {topic} has too many moves for a list, so all its copies are limited"
                for topic in self.plan.whole_topics
            ),
        ]

    async def set(self, cluster: "Cluster") -> None:
        """Set the throttle."""
        from appliance.kafka.throttles import set_throttle

        await set_throttle(cluster, self.plan, self.rate)


def remove_throttle(bootstrap: str | None, timeout: float, topics: Collection[str]) -> None:
    """Remove the throttle if no partition of the cluster moves.

    The rates of brokers apply to all moves, so they stay until the last move has ended.
    """
    from appliance.kafka import reassign
    from appliance.kafka.throttles import ThrottlesSet, clear_throttle, throttles_set

    async def remove(cluster: "Cluster") -> ThrottlesSet | None:
        found = await reassign.look(cluster, topics)
        if found.moving:
            return None
        there = [name for name in topics if not found.topics[name].error]
        left = await throttles_set(cluster, found.brokers, there)
        await clear_throttle(cluster, left.brokers, left.topics)
        return left

    removed = with_cluster(bootstrap, timeout, remove)
    if removed is None:
        return
    if removed.brokers or removed.topics:
        say(
            f"removed the throttle of {counted(len(removed.brokers), 'broker')} and "
            f"{counted(len(removed.topics), 'topic')}"
        )
