"""The rights of an enrolled collector by the broker's own rules, and the checks of `enrol`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from appliance.config.load import load
from appliance.config.model import MillConfig
from appliance.enrol.join_file import CA_CHARS_MAX
from appliance.enrol.mill_side import entry_of, note_on
from appliance.enrol.rights import (
    CollectorRights,
    TopicRight,
    acls_of,
    commit_interval_ms,
    example_topic,
    group_fault,
    name_fault,
    own_topics,
    rights_in,
    state_of,
    topic_fault,
)
from appliance.kafka.acls import deciding
from appliance.mill.home import Home, find_home
from appliance.output import CommandError
from protocol.security.acl import AclOperation, AclPermission, AclResource
from protocol.security.scram import Mechanism

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE, SETTINGS = AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS
LOGS = CollectorRights("web", (TopicRight("logs.", is_prefix=True), TopicRight("audit")))


def may(operation: AclOperation, name: str, kind: AclResource = AclResource.TOPIC) -> bool:
    entry = deciding(
        acls_of("web-07", LOGS), "collector.web-07", "10.0.0.7", operation, (kind, name)
    )
    return entry is not None and entry.permission is AclPermission.ALLOW


@pytest.mark.parametrize("topic", ["logs.access", "logs.web", "audit", "millrace.dead-letters"])
def test_a_collector_writes_lines_and_reads_none(topic: str) -> None:
    assert [may(one, topic) for one in (WRITE, SETTINGS, DESCRIBE)] == [True, True, True]
    others = (READ, CREATE, AclOperation.DELETE, AclOperation.ALTER_CONFIGS)
    assert not any(may(one, topic) for one in others)


def test_a_collector_has_the_positions_of_its_group_only() -> None:
    assert may(READ, "millrace.positions.web") and may(WRITE, "millrace.positions.web")
    for topic in ("millrace.positions", "millrace.positions.db", "millrace.positions.web2"):
        assert not may(READ, topic) and not may(WRITE, topic)
    assert may(WRITE, "millrace.collectors") and not may(READ, "millrace.collectors")


def test_a_collector_has_its_own_transactional_id_only() -> None:
    kind = AclResource.TRANSACTIONAL_ID
    assert may(WRITE, "millrace-collector-web-07", kind)
    assert not may(WRITE, "millrace-collector-web-08", kind)
    assert may(DESCRIBE, "millrace-stream", AclResource.GROUP)
    assert not may(READ, "millrace-stream", AclResource.GROUP)
    assert not may(CREATE, "kafka-cluster", AclResource.CLUSTER)


def test_the_acls_say_what_was_enrolled() -> None:
    assert rights_in(acls_of("web-07", LOGS)) == LOGS
    assert rights_in([]) is None


def test_the_topics_of_collectors() -> None:
    positions, dead, status = own_topics("web")
    assert (positions.name, positions.partitions) == ("millrace.positions.web", 16)
    assert positions.settings["cleanup.policy"] == "compact"
    assert (dead.name, status.name) == ("millrace.dead-letters", "millrace.collectors")
    assert status.settings["message.timestamp.type"] == "LogAppendTime"
    assert status.settings["cleanup.policy"] == "compact"


def test_the_example_is_a_topic_that_the_collector_may_write() -> None:
    prefix = CollectorRights("web", (TopicRight("logs.", is_prefix=True),))
    assert example_topic(prefix, ["other", "logs.json"]) == "logs.json"
    assert example_topic(prefix, []) == "logs.access"
    assert example_topic(CollectorRights("web", (TopicRight("audit"),)), ["logs.json"]) == "audit"


def test_many_collectors_commit_as_often_as_few() -> None:
    assert [commit_interval_ms(count) for count in (0, 1, 5, 6, 1_000, 100_000)] == [
        25,
        25,
        25,
        30,
        5_000,
        60_000,
    ]


def test_the_states() -> None:
    assert state_of({Mechanism.SHA_512: 0}, 5) == "joined"
    assert state_of({Mechanism.SHA_512: 6}, 5) == "waiting"
    assert state_of({Mechanism.SHA_512: 5, Mechanism.SHA_256: 0}, 5) == "over"


@pytest.mark.parametrize("name", ["", "Web", "-a", ".a", "a b", "a" * 54, "a/b", "ä", "a\n"])
def test_names_that_are_refused(name: str) -> None:
    assert "small letters" in (name_fault(name) or "")


def test_names_and_groups_that_are_accepted() -> None:
    assert [name_fault(one) for one in ("a", "7", "web-07.example", "a" * 53)] == [None] * 4
    assert group_fault("web") is None
    assert "found group 'a.b'" in (group_fault("a.b") or "")


@pytest.mark.parametrize(
    ("right", "reason"),
    [
        (TopicRight("logs.*"), "use --topics logs."),
        (TopicRight("*"), "use --topics logs."),
        (TopicRight("", is_prefix=True), "the mill's own topics"),
        (TopicRight("millrace.", is_prefix=True), "the mill's own topics"),
        (TopicRight("_", is_prefix=True), "the mill's own topics"),
        (TopicRight("millrace.positions.web"), "an internal one"),
        (TopicRight("a b"), "a b"),
    ],
)
def test_topics_that_are_refused(right: TopicRight, reason: str) -> None:
    assert reason in (topic_fault(right) or "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no network.open"),
        ("network: {open: [kafka], names: [localhost]}", "no network.login"),
        ("cluster: {bootstrap_servers: 'a:1'}", "at their mill"),
    ],
)
def test_a_mill_without_a_listener_with_logins_is_told_what_to_write(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(CommandError, match=reason) as caught:
        entry_of(*configured(tmp_path, text))
    assert "network: {open: [kafka]" in str(caught.value) or "bootstrap_servers" in text


def configured(tmp_path: Path, text: str) -> tuple[MillConfig, Home]:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    home.config_file.parent.mkdir()
    home.config_file.write_text(text + "\n")
    return load(home.config_file, home.folder).config, home


def test_the_addresses_and_the_ca_of_a_mill(tmp_path: Path) -> None:
    text = (
        "network: {open: [kafka], names: [mill.example, '::1'], login: users}\n"
        "cluster: {brokers: 3}"
    )
    config, home = configured(tmp_path, text)
    with pytest.raises(CommandError, match="CA of the brokers cannot be read"):
        entry_of(config, home)
    home.data.mkdir()
    (home.data / "ca.pem").write_bytes(b"the CA\n" + "Büro".encode("latin-1"))
    entry = entry_of(config, home)
    assert entry.ca == "the CA\nBro", "only the certificates matter"
    assert entry.addresses == (
        "mill.example:9192",
        "mill.example:9193",
        "mill.example:9194",
        "[::1]:9192",
        "[::1]:9193",
        "[::1]:9194",
    )
    (home.data / "ca.pem").write_text("a" * (CA_CHARS_MAX + 1))
    with pytest.raises(CommandError, match="a join file takes 131072"):
        entry_of(config, home)


@pytest.mark.parametrize(
    ("network", "note"),
    [
        ("names: [mill.example]", "network.listen is 127.0.0.1"),
        ("names: [localhost], listen: 0.0.0.0", "network.names is localhost"),
        ("names: [mill.example, localhost], listen: 0.0.0.0", None),
    ],
)
def test_pitfall_34_a_file_that_only_this_machine_can_use_is_named(
    network: str, note: str | None
) -> None:
    section = yaml.safe_load(f"{{open: [kafka], login: users, {network}}}")
    found = note_on(MillConfig.model_validate({"network": section}))
    assert (found is None) if note is None else (found is not None and found.startswith(note))
