"""The changes of the ACLs between two images.

This module is pure. In Kafka's log each ACL has one id, so a record with a second id for the same
ACL is refused. Otherwise the ACL would stay in force after the removal of its first id.
"""

from __future__ import annotations

from typing import Any

from broker.metadata.records import (
    AccessControlEntryRecord,
    ImpossibleRecord,
    RemoveAccessControlEntryRecord,
)
from broker.security.acl_table import AclTable
from protocol.security.acl import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.types import Uuid


def fields_of(entry: AclEntry) -> dict[str, Any]:
    """Return the fields of an ACL, as they are in a record of the log and in the answer to a
    deletion."""
    return {
        "resource_type": entry.resource_type,
        "resource_name": entry.resource_name,
        "pattern_type": entry.pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


class AclChanges:
    """The ACLs of an image, and the records that were replayed on them."""

    def __init__(self, base: AclTable) -> None:
        self._base = base
        self._changes: dict[Uuid, AclEntry | None] = {}
        self._added: set[AclEntry] = set()
        self._removed: set[AclEntry] = set()

    def table(self) -> AclTable:
        """Return the ACLs after all records; the same table if there were none."""
        return self._base.changed(self._changes) if self._changes else self._base

    def replay(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        """Replay a record. Raises ImpossibleRecord without any change."""
        known = self._entry(record.id)
        if isinstance(record, RemoveAccessControlEntryRecord):
            if known is None:
                raise ImpossibleRecord(f"there is no ACL with id {record.id}")
            self._changes[record.id] = None
            self._added.discard(known)
            self._removed.add(known)
            return
        entry = _entry_of(record)
        is_there = entry in self._base.ids and entry not in self._removed
        if known is not None or is_there or entry in self._added:
            raise ImpossibleRecord(f"an ACL with id {record.id} already exists")
        self._changes[record.id] = entry
        self._added.add(entry)

    def _entry(self, acl_id: Uuid) -> AclEntry | None:
        if acl_id in self._changes:
            return self._changes[acl_id]
        return self._base.entries.get(acl_id)


def _entry_of(record: AccessControlEntryRecord) -> AclEntry:
    try:
        return AclEntry(
            AclResource(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            AclOperation(record.operation),
            AclPermission(record.permission_type),
        )
    except ValueError as error:
        raise ImpossibleRecord(f"the ACL with id {record.id} is not valid: {error}") from error
