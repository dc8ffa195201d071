"""Parses ACLs in the words of a command, finds faults in them, and finds the ACL that decides about
an operation."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from appliance.output import CommandError, Exit
from broker.security.acl_table import NO_ACLS
from protocol.client.acl_admin import describe_acls
from protocol.client.admin_types import ConfigResource
from protocol.client.admin_types import ResourceType as ConfigType
from protocol.client.cluster import Cluster
from protocol.client.config_admin import describe_configs
from protocol.client.user_admin import describe_users
from protocol.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    USER_PREFIX,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.security.address import normal_host
from protocol.types import Uuid

SUPER_USERS = "super.users"

RESOURCE_WORDS = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "transactional-id": AclResource.TRANSACTIONAL_ID,
    "cluster": AclResource.CLUSTER,
}


def word_of(one: AclOperation | AclResource) -> str:
    """Return the word that commands use for an operation or a resource type."""
    return one.name.lower().replace("_", "-")


OPERATION_WORDS = {
    word_of(one): one
    for one in (
        AclOperation.ALL,
        *sorted({one for all_of_type in SUPPORTED_OPERATIONS.values() for one in all_of_type}),
    )
}


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that the options of a command name."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False
    prefixed: bool = False

    def patterns(self) -> list[tuple[AclResource, str, PatternType]]:
        """Return type, name and pattern type of each. Raises CommandError."""
        named = (
            *((AclResource.TOPIC, name) for name in self.topics),
            *((AclResource.GROUP, name) for name in self.groups),
            *((AclResource.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
        )
        kind = PatternType.PREFIXED if self.prefixed else PatternType.LITERAL
        found = [(of, _checked(of, name, self.prefixed), kind) for of, name in named]
        if self.cluster:
            found.append((AclResource.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        return found


def _checked(kind: AclResource, name: str, prefixed: bool) -> str:
    """Return a name. Raises CommandError if it looks like a pattern, because ACLs have no such
    patterns."""
    option = f"--{word_of(kind)} {name}"
    if not name:
        raise CommandError(f"{option}: the name is empty", Exit.USAGE)
    if name == WILDCARD and prefixed:
        text = f"{option} --prefixed: found a star, which means all names, so leave out --prefixed"
        raise CommandError(text, Exit.USAGE)
    if WILDCARD in name and name != WILDCARD:
        start = name.partition(WILDCARD)[0]
        remedy = f"; for all names that begin with {start} use --{word_of(kind)} {start} --prefixed"
        text = f"{option}: a star must be the whole name{remedy if start else ''}"
        raise CommandError(text, Exit.USAGE)
    return name


def operations_of(words: str) -> list[AclOperation]:
    """Return the operations in a list with commas as separators. Raises CommandError."""
    found = []
    for word in words.split(","):
        operation = OPERATION_WORDS.get(word.strip().lower().replace("_", "-"))
        if operation is None:
            known = ", ".join(OPERATION_WORDS)
            raise CommandError(f"found operation {word!r}, expected one of {known}", Exit.USAGE)
        found.append(operation)
    return found


def entries_of(
    user: str, words: str, resources: Resources, host: str, permission: AclPermission
) -> list[AclEntry]:
    """Return the ACLs that the arguments of a command describe. Raises CommandError.

    With several resources, an operation that a resource does not have is left out for this
    resource.
    """
    patterns = resources.patterns()
    if not patterns:
        expected = "--topic, --group, --transactional-id or --cluster"
        raise CommandError(f"found no resource, expected {expected}", Exit.USAGE)
    operations = operations_of(words)
    entries = [
        AclEntry(kind, name, pattern, USER_PREFIX + user, host, operation, permission)
        for kind, name, pattern in patterns
        for operation in operations
        if _is_supported(kind, operation)
    ]
    used = {one.operation for one in entries}
    for operation in operations:
        if operation not in used:
            kinds = ", ".join(dict.fromkeys(word_of(kind) for kind, _, _ in patterns))
            text = f"{word_of(operation)} is no operation on a {kinds}"
            raise CommandError(f"{text}; expected {_operations_on(patterns)}", Exit.USAGE)
    return entries


def _is_supported(kind: AclResource, operation: AclOperation) -> bool:
    return operation is AclOperation.ALL or operation in SUPPORTED_OPERATIONS[kind]


def _operations_on(patterns: Iterable[tuple[AclResource, str, PatternType]]) -> str:
    kinds = {kind for kind, _, _ in patterns}
    return ", ".join(
        word
        for word, operation in OPERATION_WORDS.items()
        if any(_is_supported(kind, operation) for kind in kinds)
    )


def filters_of(
    user: str | None, words: str | None, resources: Resources, host: str | None
) -> list[AclFilter]:
    """Return the filters that select the ACLs that a command describes. Raises CommandError."""
    principal = None if user is None else USER_PREFIX + user
    operations = operations_of(words) if words else [AclOperation.ANY]
    patterns: list[tuple[AclResource, str | None, PatternType]] = [*resources.patterns()]
    if not patterns:
        patterns = [(AclResource.ANY, None, PatternType.ANY)]
    return [
        AclFilter(kind, name, pattern, principal, host, operation)
        for kind, name, pattern in patterns
        for operation in operations
    ]


def row_of(entry: AclEntry) -> dict[str, str]:
    """Return an ACL as a row of a table."""
    return {
        "user": entry.principal.removeprefix(USER_PREFIX),
        "permission": entry.permission.name.lower(),
        "operation": word_of(entry.operation),
        "resource": word_of(entry.resource_type),
        "name": entry.resource_name,
        "pattern": entry.pattern_type.name.lower(),
        "host": entry.host,
    }


def sentence_of(entry: AclEntry) -> str:
    """Return a sentence that describes an ACL."""
    row = row_of(entry)
    name = f" {row['name']}"
    if entry.pattern_type is PatternType.PREFIXED:
        name = f"s that begin with {row['name']}"
    elif entry.resource_name == WILDCARD:
        name = "s of any name"
    elif entry.resource_type is AclResource.CLUSTER:
        name = ""
    who = "every user" if row["user"] == WILDCARD else f"user {row['user']}"
    place = "" if row["host"] == WILDCARD else f" from {row['host']}"
    return f"{row['permission']} {who} to {row['operation']} {row['resource']}{name}{place}"


async def matching(cluster: Cluster, filters: Sequence[AclFilter]) -> list[AclEntry]:
    """Return the ACLs that match any of the filters, each once and in order."""
    found: dict[AclEntry, None] = {}
    for wanted in filters:
        found.update(dict.fromkeys(await describe_acls(cluster, wanted)))
    return sorted(found)


@dataclass(frozen=True, slots=True)
class KnownRights:
    """All ACLs of a cluster, and the super users, which need no ACLs."""

    entries: Sequence[AclEntry]
    super_users: Collection[str]


async def known_rights(cluster: Cluster) -> KnownRights:
    """Return the ACLs and the super users. Both are the same on all brokers."""
    entries = await describe_acls(cluster, AclFilter())
    return KnownRights(entries, await super_users(cluster))


async def super_users(cluster: Cluster) -> set[str]:
    """Return the names of the super users. Raises ApiError."""
    broker = ConfigResource(ConfigType.BROKER, str(min(cluster.current.brokers)))
    settings = await describe_configs(cluster, [broker], [SUPER_USERS])
    found = settings[broker].get(SUPER_USERS)
    named = (found.value if found is not None else None) or ""
    return {one.removeprefix(USER_PREFIX) for one in named.split(";") if one}


async def notes_on(cluster: Cluster, entries: Sequence[AclEntry]) -> list[str]:
    """Return notes on new ACLs: users and topics in them that do not exist."""
    notes: list[str] = []
    users = {one.principal.removeprefix(USER_PREFIX) for one in entries} - {WILDCARD}
    known = await describe_users(cluster, sorted(users)) if users else {}
    notes.extend(f"there is no user {name} yet" for name in sorted(users - known.keys()))
    topics = {
        one.resource_name
        for one in entries
        if one.resource_type is AclResource.TOPIC
        and one.pattern_type is PatternType.LITERAL
        and one.resource_name != WILDCARD
    }
    if topics:
        existing = (await cluster.metadata(refresh=True)).topics
        notes.extend(f"there is no topic {name} yet" for name in sorted(topics - existing.keys()))
    return notes


def resource_of(text: str) -> tuple[AclResource, str]:
    """Return the resource in a text such as `topic:logs`. Raises CommandError."""
    word, _, name = text.partition(":")
    kind = RESOURCE_WORDS.get(word)
    if kind is AclResource.CLUSTER and name in ("", CLUSTER_NAME):
        return kind, CLUSTER_NAME
    if kind is None or kind is AclResource.CLUSTER or not name:
        expected = "topic:NAME, group:NAME, transactional-id:NAME or cluster"
        raise CommandError(f"found resource {text!r}, expected {expected}", Exit.USAGE)
    return kind, name


def deciding(
    entries: Iterable[AclEntry],
    user: str,
    host: str,
    operation: AclOperation,
    resource: tuple[AclResource, str],
) -> AclEntry | None:
    """Return the ACL that decides about an operation, by the rules of the broker; None if no ACL
    allows or denies it."""
    changes: Mapping[Uuid, AclEntry | None] = {
        Uuid(int=number): one for number, one in enumerate(entries, 1)
    }
    table = NO_ACLS.changed(changes)
    return table.deciding(USER_PREFIX + user, normal_host(host), operation, *resource)
