"""The check of `doctor` that compares topics with what the file states for them.

The mill creates topics that are missing, and never changes a topic that exists, because a command
may have changed it on purpose.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from appliance.checks.startup import Check, CheckLevel
from appliance.kafka.session import TIMEOUT_MS, open_cluster, run
from appliance.mill.entry import cluster_entry
from appliance.mill.settings import Mill, topics_for
from appliance.output import CommandError
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource
from protocol.client.topic_details import describe_topics
from protocol.security.cluster_security import ClusterEntry


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The number of partitions and some settings of a topic: stated in the file, or in effect."""

    partitions: int | None
    settings: Mapping[str, str | None]


def rows(mill: Mill, timeout_ms: int = TIMEOUT_MS) -> Iterator[Check]:
    """Yield a warning for each topic that differs from the file."""
    stated = {
        one["name"]: TopicFacts(one["partitions"], one["settings"])
        for one in topics_for(mill.config, tuple(topic.name for topic in mill.config.topics))
    }
    if not stated:
        return
    try:
        found = run(_ask(cluster_entry(mill), stated, timeout_ms))
    except CommandError as error:
        yield Check(CheckLevel.WARNING, "topics", str(error), "`./millrace status`")
        return
    yield from differences(stated, found)


def differences(
    stated: Mapping[str, TopicFacts], found: Mapping[str, TopicFacts]
) -> Iterator[Check]:
    """Yield a warning with the command that ends it for each topic that differs."""
    for name, wanted in stated.items():
        there = found.get(name)
        if there is None:
            continue
        changes = [
            f"{key}={value}"
            for key, value in wanted.settings.items()
            if there.settings.get(key) != value
        ]
        words = [
            f"{one}, found {there.settings.get(one.partition('=')[0]) or 'nothing'}"
            for one in changes
        ]
        command = "".join(f" -c {one}" for one in changes)
        more = wanted.partitions or 0
        if there.partitions is not None and more > there.partitions:
            words.append(f"{more} partitions, found {there.partitions}")
            command += f" -p {more}"
        if words:
            yield Check(
                CheckLevel.WARNING,
                f"topic {name}",
                f"the file states {'; '.join(words)}; the mill does not change a topic that exists",
                f"`./millrace topic alter {name}{command}`",
            )


async def _ask(
    asked: ClusterEntry, stated: Mapping[str, TopicFacts], timeout_ms: int
) -> dict[str, TopicFacts]:
    async with open_cluster(asked, timeout_ms=timeout_ms) as cluster:
        topics = await describe_topics(cluster, list(stated))
        there = [name for name, one in topics.items() if not one.error]
        keys = sorted({key for name in there for key in stated[name].settings})
        resources = [ConfigResource.topic(name) for name in there]
        found = await Admin(cluster).describe_configs(resources, keys) if resources else {}
    return {
        resource.name: TopicFacts(
            len(topics[resource.name].partitions),
            {key: entry.value for key, entry in entries.items()},
        )
        for resource, entries in found.items()
    }
