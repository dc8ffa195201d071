"""Sets and removes the throttle of reassignments: Kafka's four keys on the brokers and topics that
take part.

A throttle is plain configuration. Each broker has a rate for the copies that it sends and one for
those that it receives. Each topic has a list of the replicas that send, and one of those that
receive. `plan_throttle` is pure, and it gives the same lists as Kafka's tool.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from appliance.kafka.configs import source_of
from protocol.client.admin_types import ConfigResource
from protocol.client.cluster import Cluster
from protocol.client.config_admin import alter_configs, describe_configs
from protocol.client.reassignment_admin import Reassignment
from protocol.reassignment import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    original_replicas,
)
from protocol.types import TopicPartition

BROKER_KEYS = (LEADER_RATE, FOLLOWER_RATE, "replica.alter.log.dirs.io.max.bytes.per.second")
"""The keys of brokers. The last one is for copies between the folders of one broker, which only
Kafka has."""

TOPIC_KEYS = (LEADER_LIST, FOLLOWER_LIST)

LIST_LENGTH_MAX = 32_767
"""The longest list that a broker accepts. Instead of a longer list, `*` names all replicas of the
topic."""

REQUEST_LENGTH_MAX = 200_000
"""The largest number of characters of lists in one request, so that the controller can answer other
requests in between."""


@dataclass(frozen=True, slots=True)
class ThrottlePlan:
    """The lists of each topic, and the brokers that send or receive copies."""

    lists: Mapping[str, Mapping[str, str]]
    brokers: frozenset[int]
    whole_topics: tuple[str, ...]
    """The topics of which all copies are limited, because a list would be too long."""


def plan_throttle(
    moving: Mapping[TopicPartition, Reassignment],
    targets: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    in_service: Collection[int],
) -> ThrottlePlan:
    """Return the throttle for these targets and the reassignments under way.

    The present replicas send copies, and the new ones receive them. The replicas of reassignments
    in progress stay in the lists, because a new list replaces the earlier one. A broker that is not
    in service gets no rate, because only the broker itself can change its settings.
    """
    sources = {tp: set(original_replicas(one.replicas, one.adding)) for tp, one in moving.items()}
    receivers = {tp: set(one.adding) for tp, one in moving.items()}
    for tp, target in targets.items():
        sources.setdefault(tp, set(current.get(tp, ())))
        receivers[tp] = set(target) - sources[tp]
    lists: dict[str, dict[str, str]] = {}
    whole = set()
    for key, replicas in ((LEADER_LIST, sources), (FOLLOWER_LIST, receivers)):
        entries: dict[str, list[str]] = {}
        for tp, brokers in replicas.items():
            named = entries.setdefault(tp.topic, [])
            named += (f"{tp.partition}:{broker}" for broker in brokers)
        for topic, named in entries.items():
            value = ",".join(sorted(named))
            if len(value) > LIST_LENGTH_MAX:
                value = "*"
                whole.add(topic)
            lists.setdefault(topic, {})[key] = value
    brokers_of_all = frozenset[int]().union(*sources.values(), *receivers.values())
    return ThrottlePlan(lists, brokers_of_all.intersection(in_service), tuple(sorted(whole)))


async def set_throttle(cluster: Cluster, wanted: ThrottlePlan, rate: int) -> None:
    """Set the lists, and then the rate of each broker for both directions, in bytes a second."""
    part: dict[ConfigResource, Mapping[str, str | None]] = {}
    length = 0
    for topic, lists in sorted(wanted.lists.items()):
        part[ConfigResource.topic(topic)] = dict(lists)
        length += sum(map(len, lists.values()))
        if length > REQUEST_LENGTH_MAX:
            await alter_configs(cluster, part)
            part, length = {}, 0
    if part:
        await alter_configs(cluster, part)
    rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    await alter_configs(
        cluster, {ConfigResource.broker(one): rates for one in sorted(wanted.brokers)}
    )


async def clear_throttle(
    cluster: Cluster, brokers: Collection[int], topics: Collection[str]
) -> None:
    """Remove the rates of these brokers and the lists of these topics. All must exist."""
    rates: dict[str, str | None] = dict.fromkeys(BROKER_KEYS)
    lists: dict[str, str | None] = dict.fromkeys(TOPIC_KEYS)
    await alter_configs(cluster, {ConfigResource.broker(one): rates for one in sorted(brokers)})
    await alter_configs(cluster, {ConfigResource.topic(one): lists for one in sorted(topics)})


@dataclass(frozen=True, slots=True)
class ThrottlesSet:
    """The brokers with a rate, and the topics with a list."""

    brokers: frozenset[int]
    topics: frozenset[str]


async def throttles_set(
    cluster: Cluster, brokers: Collection[int], topics: Collection[str]
) -> ThrottlesSet:
    """Return what was set for these brokers and topics. All must exist."""
    of_brokers = await _set_values(cluster, map(ConfigResource.broker, brokers), BROKER_KEYS)
    of_topics = await _set_values(cluster, map(ConfigResource.topic, topics), TOPIC_KEYS)
    return ThrottlesSet(
        frozenset(int(one.name) for one in of_brokers), frozenset(one.name for one in of_topics)
    )


async def _set_values(
    cluster: Cluster, resources: Iterable[ConfigResource], keys: Sequence[str]
) -> list[ConfigResource]:
    """Return the resources for which one of these keys has a value of its own."""
    found = await describe_configs(cluster, list(resources), keys)
    return [
        resource
        for resource, entries in found.items()
        if any(entry.source == source_of(resource) for entry in entries.values())
    ]
