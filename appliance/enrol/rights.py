"""The user of an enrolled collector: its name, its ACLs, and the topics that must exist for it.

This module is pure. A collector on another host has no right to create topics, so `enrol` creates
those of the collectors. The ACLs also say to which group a collector belongs, so no other record of
the enrolment is kept.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.controller.own_credentials import ENROLLED_PREFIX
from collector.config.input_section import (
    DEAD_LETTERS_TOPIC,
    GROUP_POSITIONS_PREFIX,
    check_input_topic,
)
from collector.config.settings import COMMIT_MS, COMMIT_MS_MAX, GROUP_NAME, READER_GROUP
from collector.send.position_topics import GROUP_PARTITIONS, positions_topic
from collector.send.rights import transactional_id_of
from collector.send.topics import POSITIONS_SETTINGS, REPORTS_SETTINGS
from protocol.client.admin_types import TopicSpec
from protocol.collector_report import COLLECTORS_TOPIC
from protocol.security.acl import (
    USER_PREFIX,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.security.scram import Mechanism

NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,52}")
NAME_EXPECTED = "1 to 53 small letters, digits, dots and hyphens, the first a letter or digit"
GROUP = re.compile(GROUP_NAME)
GROUP_EXPECTED = "1 to 31 small letters, digits and hyphens, the first a letter or digit"

GROUP_DEFAULT = "hosts"
TOPICS_DEFAULT = "logs."
"""The beginning of the names of the topics that a collector may write by default."""

COMMIT_MS_PER_COLLECTOR = 5


@dataclass(frozen=True, slots=True)
class TopicRight:
    """Topics that a collector may write: the topic `name`, or all whose names begin with it."""

    name: str
    is_prefix: bool = False

    def covers(self, topic: str) -> bool:
        """Return True if the right is about this topic."""
        return topic.startswith(self.name) if self.is_prefix else topic == self.name

    @property
    def pattern(self) -> PatternType:
        """The pattern type of the ACLs of this right."""
        return PatternType.PREFIXED if self.is_prefix else PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class CollectorRights:
    """What one collector may do: its trust group, and the topics that it may write."""

    group: str
    topics: tuple[TopicRight, ...]


def user_of(name: str) -> str:
    """Return the user of the collector with this name."""
    return f"{ENROLLED_PREFIX}{name}"


def name_fault(name: str) -> str | None:
    """Return why this cannot be the name of a collector; None if it can."""
    return None if NAME.fullmatch(name) else f"found name {name!r}, expected {NAME_EXPECTED}"


def group_fault(group: str) -> str | None:
    """Return why this cannot be the name of a trust group; None if it can."""
    return None if GROUP.fullmatch(group) else f"found group {group!r}, expected {GROUP_EXPECTED}"


def topic_fault(right: TopicRight) -> str | None:
    """Return why a collector cannot be allowed to write these topics; None if it can."""
    if WILDCARD in right.name:
        return (
            f"found {right.name!r}, expected a topic without a star; for all topics that begin with"
            f" a text use --topics {right.name.partition(WILDCARD)[0] or TOPICS_DEFAULT}"
        )
    if right.is_prefix and covers_own_topics(right):
        return f"found --topics {right.name!r}, which includes the mill's own topics"
    try:
        check_input_topic(right.name)
    except ValueError as error:
        return str(error)
    return None


def covers_own_topics(right: TopicRight) -> bool:
    """Return True if a prefix includes topics of the mill itself."""
    own = (GROUP_POSITIONS_PREFIX, DEAD_LETTERS_TOPIC, COLLECTORS_TOPIC, "__")
    return any(one.startswith(right.name) or right.name.startswith(one) for one in own)


def acls_of(name: str, rights: CollectorRights) -> list[AclEntry]:
    """Return the ACLs of a collector. It creates no topics and changes no settings."""
    write, read = AclOperation.WRITE, AclOperation.READ
    # The collector reads the largest size of a batch that a topic takes.
    settings = AclOperation.DESCRIBE_CONFIGS
    literal = PatternType.LITERAL
    topics = [
        *((one.name, one.pattern, write) for one in rights.topics),
        *((one.name, one.pattern, settings) for one in rights.topics),
        *((positions_topic(rights.group), literal, one) for one in (read, write)),
        *((DEAD_LETTERS_TOPIC, literal, one) for one in (write, settings)),
        (COLLECTORS_TOPIC, literal, write),
    ]
    principal = USER_PREFIX + user_of(name)

    def allowed(
        kind: AclResource, resource: str, pattern: PatternType, operation: AclOperation
    ) -> AclEntry:
        allow = AclPermission.ALLOW
        return AclEntry(kind, resource, pattern, principal, WILDCARD, operation, allow)

    return [
        *(allowed(AclResource.TOPIC, *one) for one in topics),
        allowed(AclResource.TRANSACTIONAL_ID, transactional_id_of(name), literal, write),
        # The collector holds old lines back while this group is behind.
        allowed(AclResource.GROUP, READER_GROUP, literal, AclOperation.DESCRIBE),
    ]


def rights_in(entries: Iterable[AclEntry]) -> CollectorRights | None:
    """Return the rights that the ACLs of a collector's user give; None if they name no group."""
    group: str | None = None
    topics: dict[TopicRight, None] = {}
    for one in entries:
        if one.resource_type is not AclResource.TOPIC or one.operation is not AclOperation.WRITE:
            continue
        if one.resource_name.startswith(GROUP_POSITIONS_PREFIX):
            group = one.resource_name.removeprefix(GROUP_POSITIONS_PREFIX)
        elif one.resource_name not in (DEAD_LETTERS_TOPIC, COLLECTORS_TOPIC):
            right = TopicRight(one.resource_name, one.pattern_type is PatternType.PREFIXED)
            topics[right] = None
    return None if group is None else CollectorRights(group, tuple(topics))


def own_topics(group: str) -> list[TopicSpec]:
    """Return the topics of the mill that collectors of a group need."""
    positions = positions_topic(group)
    return [
        TopicSpec(positions, GROUP_PARTITIONS, None, POSITIONS_SETTINGS),
        TopicSpec(DEAD_LETTERS_TOPIC, 1),
        TopicSpec(COLLECTORS_TOPIC, 1, None, REPORTS_SETTINGS),
    ]


def example_topic(rights: CollectorRights, known: Collection[str]) -> str:
    """Return a topic that a collector may write, for the example in its configuration. `known` are
    the topics of the mill's own inputs."""
    for right in rights.topics:
        if not right.is_prefix:
            return right.name
        for topic in known:
            if right.covers(topic):
                return topic
    return f"{rights.topics[0].name}access"


def commit_interval_ms(collector_count: int) -> int:
    """Return the shortest time between two commits of a collector, if there are so many collectors.
    It grows with their number, so that all of them together commit equally often."""
    return max(COMMIT_MS, min(COMMIT_MS_PER_COLLECTOR * collector_count, COMMIT_MS_MAX))


def state_of(ends_ms: Mapping[Mechanism, int], now_ms: int) -> str:
    """Return the state of an enrolment: joined, waiting or over. `ends_ms` has the ends of its
    credentials, as `describe_enrolments` returns them."""
    ends = [one for one in ends_ms.values() if one]
    if not ends:
        return "joined"
    return "waiting" if max(ends) > now_ms else "over"


def names_of(users: Sequence[str]) -> list[str]:
    """Return the names of the collectors among these users."""
    prefix = ENROLLED_PREFIX
    return [one.removeprefix(prefix) for one in users if one.startswith(prefix)]
