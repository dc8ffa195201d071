"""Access control entries (ACLs) in Kafka's words: the rights of users on resources.

This module is pure. The numbers are those of Kafka's protocol. An entry is for one pattern of
resource names and one principal. Kafka's commands call the entries ACLs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
"""As the name of a literal pattern: all resources. As a host: all hosts."""

USER_PREFIX = "User:"
ANY_USER = "User:*"

CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class AclResource(IntEnum):
    """The type of a resource. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which an entry names its resources. ANY and MATCH are for filters only.

    MATCH finds all entries that apply to a resource of the filter's name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """An operation on a resource. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    """The effect of an entry. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
"""The operations that requests can ask for, by type of resource."""


class AclEntry(NamedTuple):
    """One ACL. The principal is `User:NAME` or `User:*`. The host is an address or `*`."""

    resource_type: AclResource
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclFilter(NamedTuple):
    """A filter for ACLs. None and ANY match everything."""

    resource_type: AclResource = AclResource.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, entry: AclEntry) -> bool:
        """Return True if the filter selects this entry."""
        return (
            self.resource_type in (AclResource.ANY, entry.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, entry.pattern_type)
            and self._matches_name(entry)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    def _matches_name(self, entry: AclEntry) -> bool:
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == entry.resource_name
        if entry.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(entry.resource_name)
        return entry.resource_name in (self.resource_name, WILDCARD)
