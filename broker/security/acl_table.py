"""All ACLs at one offset of the metadata log, with an index, and the decision on one operation.

This module is pure. The rules are those of Kafka's StandardAuthorizer. A matching DENY is stronger
than every ALLOW, and nothing is allowed without an ALLOW. An ALLOW of READ, WRITE, DELETE or ALTER
also allows DESCRIBE, and an ALLOW of ALTER_CONFIGS also allows DESCRIBE_CONFIGS. A DENY denies only
its own operation. ALL stands for every operation in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from broker.security.shared_map import SharedMap
from protocol.security.acl import (
    ANY_USER,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.security.address import normal_host
from protocol.types import Uuid

ALLOWED_BY: Mapping[AclOperation, frozenset[AclOperation]] = {
    operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation
} | {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
"""The operations in an ALLOW that allow an operation."""


class _Rule(NamedTuple):
    """An entry in the index. `host` is the entry's host in the form of `normal_host`."""

    host: str
    entry: AclEntry


_Pattern = tuple[AclResource, PatternType, str]
_Rules = dict[str, tuple[_Rule, ...]]
"""The rules of one pattern by principal."""


class AclTable:
    """The ACLs, by id and by resource. A table never changes. Other ACLs are in another table."""

    __slots__ = ("_lengths", "_rules", "entries", "ids")

    def __init__(self) -> None:
        self.entries: SharedMap[Uuid, AclEntry] = SharedMap()
        self.ids: SharedMap[AclEntry, Uuid] = SharedMap()
        self._rules: SharedMap[_Pattern, _Rules] = SharedMap()
        self._lengths: dict[AclResource, Counter[int]] = {}
        """For each resource type, the lengths of the prefixes in the table, with the number of
        prefixes of each length."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclTable) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(len(self.entries))

    def changed(self, changes: Mapping[Uuid, AclEntry | None]) -> AclTable:
        """Return a table with these changes. None removes the entry with this id.

        The time depends on the number of changes, and hardly on the number of entries.
        """
        table = AclTable()
        table._lengths = {kind: lengths.copy() for kind, lengths in self._lengths.items()}
        ids: dict[AclEntry, Uuid | None] = {}
        rules: dict[_Pattern, _Rules] = {}
        for acl_id in changes:
            if (old := self.entries.get(acl_id)) is not None:
                ids[old] = None
                self._remove(old, rules)
        for acl_id, entry in changes.items():
            if entry is not None:
                ids[entry] = acl_id
                self._add(entry, rules)
        for pattern, found in rules.items():
            table._count(pattern, bool(found) - (pattern in self._rules))
        table.entries = self.entries.changed(changes)
        table.ids = self.ids.changed(ids)
        table._rules = self._rules.changed(
            {pattern: found or None for pattern, found in rules.items()}
        )
        return table

    def _rules_of(self, entry: AclEntry, changed: dict[_Pattern, _Rules]) -> _Rules:
        """Return the rules of the entry's pattern as a dictionary that can be changed."""
        pattern = (entry.resource_type, entry.pattern_type, entry.resource_name)
        if pattern not in changed:
            changed[pattern] = dict(self._rules.get(pattern) or {})
        return changed[pattern]

    def _add(self, entry: AclEntry, changed: dict[_Pattern, _Rules]) -> None:
        rules = self._rules_of(entry, changed)
        rule = _Rule(normal_host(entry.host), entry)
        rules[entry.principal] = (*rules.get(entry.principal, ()), rule)

    def _remove(self, entry: AclEntry, changed: dict[_Pattern, _Rules]) -> None:
        rules = self._rules_of(entry, changed)
        left = tuple(rule for rule in rules.pop(entry.principal) if rule.entry != entry)
        if left:
            rules[entry.principal] = left

    def _count(self, pattern: _Pattern, change: int) -> None:
        """Add a prefix to the counts of prefix lengths, or remove one."""
        kind, pattern_type, name = pattern
        if pattern_type is not PatternType.PREFIXED or not change:
            return
        lengths = self._lengths.setdefault(kind, Counter())
        lengths[len(name)] += change
        if not lengths[len(name)]:
            del lengths[len(name)]

    def _matching(self, resource_type: AclResource, name: str) -> Iterator[_Rules]:
        """Yield the rules of each pattern that matches a resource."""
        patterns = [
            (resource_type, PatternType.LITERAL, name),
            (resource_type, PatternType.LITERAL, WILDCARD),
        ]
        patterns.extend(
            (resource_type, PatternType.PREFIXED, name[:length])
            for length in self._lengths.get(resource_type, ())
            if length <= len(name)
        )
        for pattern in patterns:
            if (rules := self._rules.get(pattern)) is not None:
                yield rules

    def deciding(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
    ) -> AclEntry | None:
        """Return the entry that denies or allows an operation; None if no entry does, which also
        denies it.

        `host` is the client's address in the form of `normal_host`.
        """
        allowing = None
        for rules in self._matching(resource_type, name):
            for who in (principal, ANY_USER):
                for rule_host, entry in rules.get(who, ()):
                    if rule_host not in (host, WILDCARD):
                        continue
                    if entry.permission is AclPermission.DENY:
                        if entry.operation in (operation, AclOperation.ALL):
                            return entry
                    elif entry.operation in ALLOWED_BY[operation]:
                        allowing = allowing or entry
        return allowing

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
    ) -> bool:
        """Return True if an entry allows the operation and none denies it."""
        entry = self.deciding(principal, host, operation, resource_type, name)
        return entry is not None and entry.permission is AclPermission.ALLOW

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource
    ) -> bool:
        """Return True if there can be a resource of this type on which the operation is allowed.

        This is Kafka's authorizeByResourceType (KIP-679). A DENY has an effect only if it covers
        the whole pattern of an ALLOW. The time grows with the number of entries.
        """
        named: dict[tuple[AclPermission, PatternType], set[str]] = {
            (permission, pattern_type): set()
            for permission in (AclPermission.ALLOW, AclPermission.DENY)
            for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        }
        for (kind, pattern_type, name), rules in self._rules.items():
            if kind is not resource_type:
                continue
            for who in (principal, ANY_USER):
                for rule_host, entry in rules.get(who, ()):
                    is_meant = entry.operation in (operation, AclOperation.ALL)
                    if is_meant and rule_host in (host, WILDCARD):
                        named[entry.permission, pattern_type].add(name)
        denied = named[AclPermission.DENY, PatternType.LITERAL]
        denied_prefixes = named[AclPermission.DENY, PatternType.PREFIXED]
        if WILDCARD in denied:
            return False
        literals = named[AclPermission.ALLOW, PatternType.LITERAL]
        if WILDCARD in literals:
            return True
        allowed = (literals - denied) | named[AclPermission.ALLOW, PatternType.PREFIXED]
        return any(not _is_covered(name, denied_prefixes) for name in allowed)


def _is_covered(name: str, prefixes: set[str]) -> bool:
    """Return True if one of the prefixes begins the name, or is the name."""
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))


NO_ACLS = AclTable()
