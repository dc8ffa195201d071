"""List, describe, create, change and delete topics."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.output import CommandError, Exit
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigEntry, ConfigResource
from protocol.client.cluster import Cluster
from protocol.client.reassignment_admin import list_reassignments
from protocol.client.topic_details import (
    PartitionDetails,
    TopicDetails,
    describe_topics,
    list_topics,
)
from protocol.errors import ApiError, ErrorCode
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_base64

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic with its settings that differ from Kafka's defaults, and with all settings in
    effect.
    """

    details: TopicDetails
    overrides: Mapping[str, str | None]
    min_isr: int | None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.details.name

    @property
    def topic_id(self) -> str | None:
        """The topic's id as Kafka writes it; None if the cluster has no ids."""
        known = self.details.topic_id
        return None if known == ZERO_UUID else uuid_to_base64(known)


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """The conditions for the partitions to show. If no flag is set, all partitions are shown."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    @property
    def is_any(self) -> bool:
        """True if only partitions with certain problems are wanted."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def has(self, partition: PartitionDetails, min_isr: int | None, live: Collection[int]) -> bool:
        """Return whether a partition has one of the wanted problems."""
        in_sync = len(partition.in_sync_replicas)
        least = 0 if min_isr is None else partition.effective_min_isr(min_isr)
        return (
            (self.under_replicated and partition.is_under_replicated)
            or (
                self.unavailable
                and (partition.leader_id is None or partition.leader_id not in live)
            )
            or (self.under_min_isr and in_sync < least)
            or (self.at_min_isr and in_sync == least)
        )


async def names(
    cluster: Cluster, pattern: str | None = None, *, with_internal: bool = True
) -> list[str]:
    """Return the matching names, sorted. Raises CommandError for a bad pattern."""
    matches = Matcher(pattern)
    return sorted(
        topic.name
        for topic in (await list_topics(cluster)).values()
        if matches(topic.name) and (with_internal or not topic.is_internal)
    )


class Matcher:
    """Matches whole names with a pattern in which a comma means "or", as in Kafka's tools.

    Raises CommandError, in Kafka's words, for a bad pattern.
    """

    def __init__(self, pattern: str | None) -> None:
        self._compiled: re.Pattern[str] | None = None
        if pattern is not None:
            text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
            try:
                self._compiled = re.compile(text)
            except re.error as error:
                raise CommandError(f"{pattern} is an invalid regex.", Exit.USAGE) from error

    def __call__(self, name: str) -> bool:
        return self._compiled is None or self._compiled.fullmatch(name) is not None


async def views(cluster: Cluster, wanted: Sequence[str]) -> list[DescribedTopic]:
    """Return these topics with their settings, in this order; deleted ones are left out."""
    details = await with_reassignments(cluster, await describe_topics(cluster, wanted))
    there = [name for name in wanted if name in details and not details[name].error]
    settings = await settings_of(cluster, there)
    return [
        DescribedTopic(
            details[name],
            {
                key: entry.value
                for key, entry in sorted(settings.get(name, {}).items())
                if not entry.is_default
            },
            _number(settings.get(name, {}).get(MIN_ISR)),
        )
        for name in there
    ]


async def with_reassignments(
    cluster: Cluster, details: Mapping[str, TopicDetails]
) -> dict[str, TopicDetails]:
    """Return the topics with the replicas that reassignments add and remove."""
    moving = await list_reassignments(cluster)

    def with_own(topic: str, one: PartitionDetails) -> PartitionDetails:
        found = moving.get(TopicPartition(topic, one.partition))
        # The two answers are from different moments. In between the reassignment can have ended or
        # been replaced.
        if found is None or set(found.replicas) != set(one.replicas):
            return one
        return replace(one, adding_replicas=found.adding, removing_replicas=found.removing)

    return {
        name: replace(topic, partitions=tuple(with_own(name, one) for one in topic.partitions))
        for name, topic in details.items()
    }


async def settings_of(
    cluster: Cluster, wanted: Collection[str]
) -> dict[str, dict[str, ConfigEntry]]:
    """Return the settings of topics by name, without topics that were deleted in the meantime."""
    found: dict[str, dict[str, ConfigEntry]] = {}
    if not wanted:
        return found
    admin = Admin(cluster)
    resources = [ConfigResource.topic(name) for name in wanted]
    try:
        answers = await admin.describe_configs(resources)
    except ApiError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or len(wanted) == 1:
            raise
        # One of the topics was deleted in the meantime, so ask for each one separately.
        for name in wanted:
            try:
                found.update(await settings_of(cluster, [name]))
            except ApiError as gone:
                if gone.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found
    return {resource.name: entries for resource, entries in answers.items()}


def _number(entry: ConfigEntry | None) -> int | None:
    return int(entry.value) if entry is not None and entry.value else None


def name_warning(name: str) -> str | None:
    """Return the warning of Kafka's tool about names that collide in metric names."""
    if "." not in name and "_" not in name:
        return None
    return (
        "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore"
        " ('_') could collide. To avoid issues it is best to use either, but not both."
    )


def assignments_of(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Parse the node ids of each partition from `1:2,2:3`. Raises CommandError."""
    if not text:
        return ()
    try:
        found = tuple(
            tuple(int(node) for node in partition.split(":")) for partition in text.split(",")
        )
    except ValueError as error:
        expected = "expected node ids such as 1:2,2:3, a comma between partitions"
        raise CommandError(f"found {text!r}, {expected}", Exit.USAGE) from error
    for nodes in found:
        if twice := sorted({node for node in nodes if nodes.count(node) > 1}):
            shown = ",".join(map(str, twice))
            what = "Partition replica lists may not contain duplicate entries"
            raise CommandError(f"{what}: {shown}", Exit.USAGE)
    return found


async def grow(
    cluster: Cluster, name: str, count: int, assignments: Sequence[Sequence[int]] = ()
) -> None:
    """Increase the number of partitions. `assignments` lists the replicas of all partitions, old
    and new.

    Raises ApiError. Raises CommandError for a topic that does not exist, for which the client would
    retry until its timeout.
    """
    details = (await describe_topics(cluster, [name]))[name]
    if details.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandError(f"topic {name!r} does not exist", Exit.NOT_FOUND)
    added: dict[str, Sequence[Sequence[int]]] = {}
    if assignments:
        added[name] = assignments[len(details.partitions) :]
    await Admin(cluster).create_partitions({name: count}, added)
