"""`millrace acl` and `kafka-acls` against a broker, and the effect of ACLs on a client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from appliance.cli.app import main
from appliance.kafka_tools import acls
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.secured import give_password
from tests.harness.wait import wait_until
from tests.interop.conftest import RunMain

pytestmark = pytest.mark.live

PASSWORD = "a long password of web"


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    settings = {"group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(folder, settings, tls=authority.write(), needs_login=True) as running:
        for user in ("root", "web"):
            give_password(running.bootstrap, user, PASSWORD)
        yield running


class Commands:
    """Runs both commands, and returns their output."""

    def __init__(self, broker: BrokerProcess, run_main: RunMain) -> None:
        self._address = broker.bootstrap
        self._run = run_main

    def acl(self, *words: str, code: int = 0) -> str:
        return self._run(main, "acl", *words, "-b", self._address, code=code)

    def kafka(self, *words: str, code: int = 0) -> str:
        return self._run(acls.main, "--bootstrap-server", self._address, *words, code=code)


@pytest.fixture
def commands(broker: BrokerProcess, run_main: RunMain) -> Iterator[Commands]:
    made = Commands(broker, run_main)
    yield made
    for resource in ("--topic", "--group"):
        made.kafka("--remove", "--force", resource, "*", "--resource-pattern-type", "match")


def settings(broker: BrokerProcess, authority: TestAuthority, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.net_bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "web",
        "sasl.password": PASSWORD,
    } | more


def written(producer: Producer, topic: str) -> int | None:
    """Write one record. Return the error code, or None on success."""
    found: list[int | None] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        found.append(None if error is None else error.code())

    try:
        producer.produce(topic, b"v", on_delivery=delivered)
    except KafkaException as refused:
        # librdkafka already got the error in its Metadata response, so `produce` itself raises.
        return int(refused.args[0].code())
    producer.flush(20)
    assert len(found) == 1
    return found[0]


def test_an_acl_from_its_creation_to_its_end(commands: Commands) -> None:
    said = commands.acl("allow", "web", "read,write", "--topic", "logs.", "--prefixed")
    assert "note: there is no topic" not in said
    assert "allow user web to read topics that begin with logs." in said
    said = commands.acl("allow", "absentee", "read", "--topic", "absent", "--group", "g")
    assert "note: there is no user absentee yet" in said and "no topic absent yet" in said
    found = json.loads(commands.acl("list", "--user", "web", "--json"))
    assert found["schema"] == "acls/1"
    assert [(one["operation"], one["name"], one["pattern"]) for one in found["data"]] == [
        ("read", "logs.", "prefixed"),
        ("write", "logs.", "prefixed"),
    ]
    commands.acl("deny", "*", "write", "--topic", "logs.old", "--host", "10.0.0.1")
    said = commands.acl("explain", "web", "write", "topic:logs.old", "--host", "10.0.0.1")
    assert "denied: because of this ACL: deny every user to write topic logs.old" in said
    assert "allowed: because of this ACL" in commands.acl("explain", "web", "write", "topic:logs.x")
    assert "denied: no ACL allows it" in commands.acl("explain", "web", "alter", "cluster")
    assert "allowed: a super user" in commands.acl("explain", "shop", "alter", "cluster")
    assert "no terminal to ask for confirmation: add --yes" in commands.acl("remove", "web", code=2)
    assert "1 ACLs of user web are removed" in commands.acl("remove", "web", "read", "--yes")
    assert "has none of these ACLs" in commands.acl("remove", "web", "read", "--yes", code=4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("allow", "web", "read", "--topic", "logs.*"), "use --topic logs. --prefixed"),
        (("allow", "web", "read", "--topic", "*", "--prefixed"), "so leave out --prefixed"),
        (("allow", "web", "read", "--topic", ""), "the name is empty"),
        (("allow", "web", "reed", "--topic", "logs"), "found operation 'reed', expected one of"),
        (("allow", "web", "read"), "found no resource, expected --topic"),
        (("allow", "web", "write", "--group", "g"), "write is no operation on a group; expected"),
        (("explain", "web", "read", "logs"), "expected topic:NAME, group:NAME"),
    ],
)
def test_what_is_refused(commands: Commands, words: tuple[str, ...], said: str) -> None:
    assert said in commands.acl(*words, code=2)


def test_kafkas_spelling(commands: Commands) -> None:
    said = commands.kafka(
        *("--add", "--allow-principal", "User:web", "--operation", "Read", "--topic", "logs")
    )
    pattern = "ResourcePattern(resourceType=TOPIC, name=logs, patternType=LITERAL)"
    access = "(principal=User:web, host=*, operation=READ, permissionType=ALLOW)"
    assert said == f"Adding ACLs for resource `{pattern}`: \n \t{access}\n\n"
    assert commands.kafka("--list", "--topic", "logs") == (
        f"Current ACLs for resource `{pattern}`:\n\t{access}\n\n"
    )
    assert "exactly one action" in commands.kafka("--list", "--add", code=2)
    commands.kafka("--remove", "--force", "--topic", "logs")
    assert commands.kafka("--list", "--topic", "logs") == ""


def test_librdkafka_does_what_it_may_and_no_more(
    commands: Commands, broker: BrokerProcess, authority: TestAuthority
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic in ("open", "shut"):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    commands.acl("allow", "web", "write,read", "--topic", "open")
    producer = Producer(settings(broker, authority))
    assert written(producer, "open") is None
    assert written(producer, "shut") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    seen = AdminClient(settings(broker, authority)).list_topics(timeout=20)
    assert set(seen.topics) == {"open"} and len(seen.brokers) == 1

    reader = Consumer(
        settings(broker, authority) | {"group.id": "g", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["open"])
    with pytest.raises(KafkaException) as raised:
        _poll(reader, 20)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    commands.acl("allow", "web", "read", "--group", "g")
    wait_until(lambda: _poll(reader, 1, strict=False) is not None, 30, "a record")
    # After the rights are removed, the consumer must not read and the producer must not write.
    # The broker must also notice it for a producer whose rights it has cached.
    commands.acl("remove", "web", "--yes")
    for _ in range(3):
        assert written(producer, "open") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as raised:
        _poll(reader, 30)
    assert raised.value.args[0].code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    reader.close()


def _poll(reader: Consumer, within_s: float, *, strict: bool = True) -> bytes | None:
    """Return the value of the next record, or None. With `strict` raise KafkaException for an
    error; without it return None."""
    message = reader.poll(within_s)
    if message is None:
        return None
    if message.error() is not None:
        if strict:
            raise KafkaException(message.error())
        return None
    return message.value()
