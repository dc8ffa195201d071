"""The decisions of the ACL table by Kafka's rules. The index is compared with a model without an
index."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from broker.security.acl_table import NO_ACLS, AclTable
from protocol.security.acl import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.security.address import normal_host
from protocol.types import Uuid
from tests.harness.seed import seeded
from tests.unit.broker.security.acls import entry, table_of

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
ALTER, DESCRIBE, ALL = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.ALL
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP

SETS = 10_000
"""The number of random sets of ACLs."""


def may(
    table: AclTable, operation: AclOperation, name: str = "logs", *, host: str = "10.0.0.1"
) -> bool:
    return table.allows("User:shop", host, operation, TOPIC, name)


def test_nothing_is_allowed_without_an_entry() -> None:
    assert not may(NO_ACLS, DESCRIBE)
    assert NO_ACLS.deciding("User:shop", "10.0.0.1", READ, TOPIC, "logs") is None


@pytest.mark.parametrize("operation", [READ, WRITE, DELETE, ALTER])
def test_an_allow_implies_describe_and_a_deny_does_not(operation: AclOperation) -> None:
    allowing = table_of([entry(operation)])
    assert may(allowing, operation) and may(allowing, DESCRIBE)
    assert not may(allowing, DESCRIBE_CONFIGS)
    denying = table_of([entry(operation, denies=True), entry(DESCRIBE)])
    assert may(denying, DESCRIBE) and not may(denying, operation)
    # As in Kafka, a DENY of DESCRIBE does not take READ away.
    assert may(table_of([entry(operation), entry(DESCRIBE, denies=True)]), operation)


def test_alter_configs_implies_describe_configs() -> None:
    table = table_of([entry(ALTER_CONFIGS)])
    assert may(table, DESCRIBE_CONFIGS) and not may(table, DESCRIBE)
    assert not may(table_of([entry(DESCRIBE_CONFIGS)]), ALTER_CONFIGS)


def test_all_stands_for_every_operation() -> None:
    assert all(may(table_of([entry(ALL)]), one) for one in AclOperation if one > ALL)
    denied = table_of([entry(ALL, denies=True), entry(READ), entry(ALL)])
    assert not any(may(denied, one) for one in AclOperation if one > ALL)


def test_pitfall_18_a_deny_is_stronger_than_every_allow() -> None:
    """KIP-290: a DENY of a prefix wins over an ALLOW of the name itself, and a DENY of the name
    over an ALLOW of a prefix."""
    table = table_of([entry(READ, "logs.web"), entry(READ, "logs.", prefixed=True, denies=True)])
    assert not may(table, READ, "logs.web")
    table = table_of([entry(READ, "logs.web", denies=True), entry(READ, "logs.", prefixed=True)])
    assert not may(table, READ, "logs.web") and may(table, READ, "logs.app")
    everything_denied = table_of([entry(READ, "*", denies=True), entry(READ, "logs")])
    assert not may(everything_denied, READ)


def test_pitfall_18_a_star_is_a_wildcard_only_alone_and_literal() -> None:
    assert may(table_of([entry(READ, "*")]), READ, "anything")
    prefix = table_of([entry(READ, "*", prefixed=True)])
    assert not may(prefix, READ, "anything") and may(prefix, READ, "*starred")
    assert not may(table_of([entry(READ, "log*")]), READ, "logs")


def test_users_and_hosts() -> None:
    assert may(table_of([entry(READ, user="*")]), READ)
    assert not may(table_of([entry(READ, user="web")]), READ)
    one_host = table_of([entry(READ, host="10.0.0.1")])
    assert may(one_host, READ) and not may(one_host, READ, host="10.0.0.2")
    # The host of an ACL is an address. Networks and host names match nothing.
    assert not may(table_of([entry(READ, host="10.0.0.0/24")]), READ)
    denied = table_of([entry(READ), entry(READ, user="*", host="10.0.0.1", denies=True)])
    assert not may(denied, READ) and may(denied, READ, host="10.0.0.2")


def test_hosts_are_compared_as_addresses() -> None:
    assert normal_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert normal_host("0:0:0:0:0:0:0:1") == "::1"
    assert normal_host("name.example") == "name.example"
    assert may(table_of([entry(READ, host="::ffff:10.0.0.1")]), READ)


def test_entries_of_another_type_do_not_count() -> None:
    table = table_of([entry(READ, resource_type=GROUP)])
    assert not may(table, READ) and table.allows("User:shop", "h", READ, GROUP, "logs")


def test_pitfall_16_an_entry_that_is_removed_leaves_its_siblings() -> None:
    """Kafka CVE-2024-27309 lost the other entries of a resource when one was removed."""
    entries = [entry(READ), entry(WRITE), entry(READ, user="web"), entry(READ, "lo", prefixed=True)]
    table = table_of(entries)
    for gone in range(len(entries)):
        left = [one for number, one in enumerate(entries) if number != gone]
        smaller = table.changed({Uuid(int=gone + 1): None})
        assert list(smaller.entries.values()) == left
        for name, operation, who in itertools.product(
            ("logs", "lo", "loud"), (READ, WRITE), ("User:shop", "User:web")
        ):
            assert smaller.allows(who, "h", operation, TOPIC, name) == decides(
                left, who, "h", operation, name
            )
    assert list(table.entries.values()) == entries, "a table does not change"
    empty = table.changed({Uuid(int=number + 1): None for number in range(len(entries))})
    assert not empty.entries and not empty._rules and not empty._lengths[TOPIC]


def decides(
    entries: list[AclEntry], principal: str, host: str, operation: AclOperation, name: str
) -> bool:
    """Decide by Kafka's rules, entry by entry."""
    verdict = False
    for one in entries:
        if one.resource_type is not TOPIC:
            continue
        is_named = one.resource_name == name or one.resource_name == "*"
        if one.pattern_type is PatternType.PREFIXED:
            is_named = name.startswith(one.resource_name)
        if not is_named or one.principal not in (principal, "User:*"):
            continue
        if one.host not in (host, "*"):
            continue
        allows = one.permission is AclPermission.ALLOW
        operations = {one.operation}
        if one.operation is ALL:
            operations = set(AclOperation)
        elif allows and one.operation in (READ, WRITE, DELETE, ALTER):
            operations.add(DESCRIBE)
        elif allows and one.operation is ALTER_CONFIGS:
            operations.add(DESCRIBE_CONFIGS)
        if operation not in operations:
            continue
        if not allows:
            return False
        verdict = True
    return verdict


NAMES = ["".join(one) for size in range(1, 4) for one in itertools.product("ab*", repeat=size)]
OPERATIONS = [READ, WRITE, DESCRIBE, ALL, ALTER_CONFIGS, DESCRIBE_CONFIGS]


def random_entry(chance: Random) -> AclEntry:
    return entry(
        chance.choice(OPERATIONS),
        chance.choice(NAMES[:12]),
        chance.choice([TOPIC, TOPIC, TOPIC, GROUP]),
        user=chance.choice(["shop", "shop", "web", "*"]),
        host=chance.choice(["*", "*", "h"]),
        prefixed=chance.random() < 0.5,
        denies=chance.random() < 0.3,
    )


def test_pitfall_18_random_entries_decide_as_the_model_says() -> None:
    chance = seeded("acls")
    for _ in range(SETS):
        entries = list(dict.fromkeys(random_entry(chance) for _ in range(chance.randrange(1, 7))))
        table = table_of(entries)
        if chance.random() < 0.3:
            gone = chance.randrange(len(entries))
            table = table.changed({Uuid(int=gone + 1): None})
            del entries[gone]
        for _ in range(6):
            principal = chance.choice(["User:shop", "User:web"])
            host = chance.choice(["h", "i"])
            operation = chance.choice([one for one in OPERATIONS if one is not ALL])
            name = chance.choice(NAMES)
            found = table.allows(principal, host, operation, TOPIC, name)
            assert found == decides(entries, principal, host, operation, name), (entries, name)


def test_a_right_on_any_topic_is_a_right_on_some_name() -> None:
    """KIP-679: the answer is compared with that for every name that the entries can tell apart."""
    chance = seeded("acls of a type")
    universe = [*NAMES, *(f"{name}~" for name in NAMES), "~"]
    for _ in range(1_000):
        entries = list(dict.fromkeys(random_entry(chance) for _ in range(chance.randrange(1, 7))))
        found = table_of(entries).allows_any("User:shop", "h", WRITE, TOPIC)
        wanted = any(decides(entries, "User:shop", "h", WRITE, name) for name in universe)
        assert found == wanted, entries


def test_filters_select_as_kafkas_do() -> None:
    literal, wild = entry(READ, "logs.web"), entry(WRITE, "*", user="*")
    prefix = entry(READ, "logs.", prefixed=True, denies=True)
    other = entry(READ, "logs.web", GROUP, host="10.0.0.1")
    entries = [literal, wild, prefix, other]

    def found(**fields: object) -> list[AclEntry]:
        return [one for one in entries if AclFilter(**fields).matches(one)]  # type: ignore[arg-type]

    assert found() == entries
    assert found(resource_type=TOPIC) == [literal, wild, prefix]
    assert found(resource_name="logs.web") == [literal, other]
    matching = {"resource_name": "logs.web", "pattern_type": PatternType.MATCH}
    assert found(**matching) == entries
    assert found(resource_name="other", pattern_type=PatternType.MATCH) == [wild]
    assert found(resource_name="logs.", pattern_type=PatternType.PREFIXED) == [prefix]
    assert found(resource_name="logs.", pattern_type=PatternType.LITERAL) == []
    assert found(pattern_type=PatternType.LITERAL) == [literal, wild, other]
    assert found(principal="User:shop") == [literal, prefix, other]
    assert found(host="10.0.0.1") == [other]
    assert found(operation=READ) == [literal, prefix, other]
    assert found(permission=AclPermission.DENY) == [prefix]


def test_a_change_copies_only_what_differs() -> None:
    """Every decision of the controller makes a table, so a change must not copy 50,000 entries."""
    many = table_of(entry(READ, f"logs.{number}", prefixed=True) for number in range(20_000))
    more = many.changed({Uuid(int=99_999): entry(WRITE, "other")})
    for before, after in (
        (many.entries, more.entries),
        (many.ids, more.ids),
        (many._rules, more._rules),
    ):
        pairs = zip(before._parts, after._parts, strict=True)
        assert sum(one is not other for one, other in pairs) == 1
    assert (
        len(more.entries) == 20_001 and may(more, WRITE, "other") and not may(many, WRITE, "other")
    )
    assert more.changed({Uuid(int=99_999): None}) == many


def test_an_entry_can_change_its_id_in_one_step() -> None:
    table = table_of([entry(READ, prefixed=True)])
    moved = table.changed({Uuid(int=2): entry(READ, prefixed=True), Uuid(int=1): None})
    assert dict(moved.ids) == {entry(READ, prefixed=True): Uuid(int=2)}
    assert may(moved, READ) and not may(moved.changed({Uuid(int=2): None}), READ)
