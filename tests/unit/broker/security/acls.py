"""Short forms of ACLs for tests."""

from __future__ import annotations

from collections.abc import Iterable

from broker.security.acl_table import NO_ACLS, AclTable
from broker.security.denials import Denial
from protocol.security.acl import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.types import Uuid


class NotedDenials:
    """A list of the denials that were noted."""

    def __init__(self) -> None:
        self.noted: list[Denial] = []

    def note(self, denial: Denial) -> None:
        self.noted.append(denial)


def entry(
    operation: AclOperation,
    name: str = "logs",
    resource_type: AclResource = AclResource.TOPIC,
    *,
    user: str = "shop",
    host: str = "*",
    prefixed: bool = False,
    denies: bool = False,
) -> AclEntry:
    """Return one ACL. By default, it allows the user `shop` an operation on the topic of this
    name."""
    return AclEntry(
        resource_type,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        f"User:{user}",
        host,
        operation,
        AclPermission.DENY if denies else AclPermission.ALLOW,
    )


def table_of(entries: Iterable[AclEntry]) -> AclTable:
    return NO_ACLS.changed({Uuid(int=number + 1): one for number, one in enumerate(entries)})
