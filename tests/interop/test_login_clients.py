"""Clients of other libraries log in with SCRAM over TLS. If the login fails, they show a clear
error."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import admin as confluent_admin

from protocol.client.cluster import Cluster
from protocol.client.errors import BrokerUnreachable
from protocol.client.login import LoginSettings
from protocol.client.tls import TlsSettings
from protocol.client.user_admin import describe_users, remove_credential
from protocol.security.scram import Mechanism
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.secured import (
    brokers_found,
    console_tools_write_and_read,
    give_password,
    kcat_writes_and_reads,
)
from tests.harness.tools import KafkaTools
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

ADMIN: Any = confluent_admin
"""Its types lack the functions for users."""

USER, PASSWORD = "shop", "correct, horse = battery"
MECHANISMS = [one.sasl_name for one in Mechanism]


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, tls=authority.write(), needs_login=True) as running:
        for mechanism in Mechanism:
            give_password(running.bootstrap, USER, PASSWORD, mechanism)
        yield running


def confluent(
    broker: BrokerProcess,
    authority: TestAuthority,
    mechanism: str = "SCRAM-SHA-512",
    password: str = PASSWORD,
    user: str = USER,
) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.net_bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def client(settings: dict[str, Any]) -> Any:
    """Return an administration client of librdkafka."""
    return ADMIN.AdminClient(settings)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: BrokerProcess, authority: TestAuthority, mechanism: str) -> None:
    settings = confluent(broker, authority, mechanism)
    topic = f"librdkafka-{mechanism}"
    producer = Producer(settings)
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.poll(30)
    assert found is not None and found.value() == b"one"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: BrokerProcess, authority: TestAuthority, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": broker.net_bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority.file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"one").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
    )
    assert next(consumer).value == b"one"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: BrokerProcess, authority: TestAuthority, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": broker.net_bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(authority.file)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    topic = f"aiokafka-{mechanism}"

    async def talk() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait(topic, b"one")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        found = await asyncio.wait_for(consumer.getone(), 20)
        await consumer.stop()
        return bytes(found.value)

    assert asyncio.run(talk()) == b"one"


def test_kafkas_console_tools(
    broker: BrokerProcess, authority: TestAuthority, tmp_path: Path
) -> None:
    console_tools_write_and_read(
        KafkaTools(tmp_path, broker.net_bootstrap),
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{USER}" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n",
    )


def test_pitfall_11_kcat(broker: BrokerProcess, authority: TestAuthority) -> None:
    """kcat of a distribution has an old librdkafka. It works only if the broker offers
    SaslHandshake 0, and it sends its nonce twice."""
    settings = confluent(broker, authority)
    del settings["bootstrap.servers"], settings["log_level"]
    kcat_writes_and_reads(
        broker.net_bootstrap, [f"{key}={value}" for key, value in settings.items()]
    )


def reached(
    broker: BrokerProcess, authority: TestAuthority, password: str = PASSWORD, user: str = USER
) -> int:
    """Return the number of brokers that our client finds. The client retries for two seconds, also
    after a wrong password."""
    trusting = TlsSettings(ca=str(authority.file))
    login = LoginSettings(user, password)
    return brokers_found(broker.net_bootstrap, trusting, login, timeout_ms=2_000)


def test_our_client(broker: BrokerProcess, authority: TestAuthority) -> None:
    assert reached(broker, authority) == 1
    with pytest.raises(BrokerUnreachable, match="invalid credentials with SASL mechanism SCRAM"):
        reached(broker, authority, "wrong")
    with pytest.raises(BrokerUnreachable, match="invalid credentials with SASL mechanism SCRAM"):
        reached(broker, authority, user="unknown")
    assert "the proof is wrong" in broker.log_text()


def test_a_wrong_password_is_kafkas_error_in_other_clients(
    broker: BrokerProcess, authority: TestAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    """The error must reach the application. kafka-python retries until its timeout, and logs the
    error of each attempt."""
    errors: list[KafkaError] = []
    admin = client({**confluent(broker, authority, password="wrong"), "error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(1)
    assert KafkaError._AUTHENTICATION in {one.code() for one in errors}
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in str(errors)
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        kafka.KafkaAdminClient(
            bootstrap_timeout_ms=2_000,
            bootstrap_servers=broker.net_bootstrap,
            security_protocol="SASL_SSL",
            ssl_cafile=str(authority.file),
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username=USER,
            sasl_plain_password="wrong",
        )
    assert "SaslAuthenticationFailedError: Authentication failed" in caplog.text
    assert "socket disconnected" not in caplog.text


def test_plain_is_refused_with_the_list(broker: BrokerProcess, authority: TestAuthority) -> None:
    errors: list[KafkaError] = []
    settings = confluent(broker, authority, "PLAIN")
    admin = client({**settings, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(1)
    assert "SCRAM-SHA-256,SCRAM-SHA-512" in str(errors).replace(", ", ",")
    assert "found PLAIN, expected SCRAM-SHA-256 or SCRAM-SHA-512" in broker.log_text()


def test_a_client_with_tls_but_without_a_login_is_told_in_the_log(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    settings = confluent(broker, authority)
    admin = client({**settings, "security.protocol": "SSL"})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    assert "before its login; set security.protocol=SASL_SSL in the client" in broker.log_text()


def test_users_are_administered_by_librdkafka(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    """The requests of KIP-554, sent by librdkafka through the listener that requires a login."""
    admin = client(confluent(broker, authority))
    info = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_256, 8_192)
    made = ADMIN.UserScramCredentialUpsertion("web", info, b"a new password")
    for future in admin.alter_user_scram_credentials([made]).values():
        future.result(20)
    found = admin.describe_user_scram_credentials(["web"])["web"].result(20)
    assert [one.iterations for one in found.scram_credential_infos] == [8_192]
    web = confluent(broker, authority, "SCRAM-SHA-256", "a new password", "web")
    assert client(web).list_topics(timeout=20).brokers
    removal = ADMIN.UserScramCredentialDeletion("web", ADMIN.ScramMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([removal]).values():
        future.result(20)
    with pytest.raises(KafkaException, match=r"RESOURCE_NOT_FOUND|no SCRAM credentials"):
        admin.describe_user_scram_credentials(["web"])["web"].result(20)


def test_our_client_administers_users_and_they_survive_a_restart(
    tmp_path: Path, authority: TestAuthority
) -> None:
    with BrokerProcess(tmp_path, tls=authority.write("restart"), needs_login=True) as broker:
        give_password(broker.bootstrap, "root", PASSWORD)
        give_password(broker.bootstrap, "a", "one")
        give_password(broker.bootstrap, "b", "two", Mechanism.SHA_256)
        broker.kill9()
        broker.start()

        async def talk() -> None:
            cluster = Cluster(broker.bootstrap, client_id="admin")
            await cluster.start(10_000)
            assert await describe_users(cluster) == {
                "a": {Mechanism.SHA_512: 8_192},
                "b": {Mechanism.SHA_256: 8_192},
                "root": {Mechanism.SHA_512: 8_192},
            }
            await remove_credential(cluster, "b", Mechanism.SHA_256)
            assert set(await describe_users(cluster, ["a", "b", "c"])) == {"a"}
            await cluster.close()

        asyncio.run(talk())
        assert reached(broker, authority, "one", "a") == 1


def test_a_changed_password_ends_the_connections_of_the_user(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    give_password(broker.bootstrap, "temp", "first")

    async def talk() -> None:
        cluster = Cluster(
            broker.net_bootstrap,
            client_id="temp",
            tls=TlsSettings(ca=str(authority.file)),
            login=LoginSettings("temp", "first"),
        )
        await cluster.start(10_000)
        connection = await cluster.connection(1)
        await asyncio.to_thread(give_password, broker.bootstrap, "temp", "second")
        await asyncio.wait_for(connection.wait_closed(), 10)
        await cluster.close()

    asyncio.run(talk())
    assert reached(broker, authority, "second", "temp") == 1
    assert "the credential of the user was changed or removed" in broker.log_text()


def test_pitfall_12_clients_that_never_log_in_again_work_on(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """aiokafka does not log in again in time, so the broker ends its connection and aiokafka
    connects again. librdkafka logs in again. With both each record arrives once."""
    reauth = {"connections.max.reauth.ms": 3_000}
    files = authority.write("reauth")
    with BrokerProcess(tmp_path, reauth, tls=files, needs_login=True) as broker:
        give_password(broker.bootstrap, USER, PASSWORD)

        async def write() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=broker.net_bootstrap,
                security_protocol="SASL_SSL",
                ssl_context=ssl.create_default_context(cafile=str(authority.file)),
                sasl_mechanism="SCRAM-SHA-512",
                sasl_plain_username=USER,
                sasl_plain_password=PASSWORD,
                enable_idempotence=True,
            )
            await producer.start()
            for number in range(80):
                await producer.send_and_wait("of-aiokafka", b"%d" % number)
                await asyncio.sleep(0.1)
            await producer.stop()

        producer = Producer({**confluent(broker, authority), "enable.idempotence": True})
        asyncio.run(write())
        for number in range(100):
            producer.produce("of-librdkafka", b"%d" % number)
            producer.flush(20)
        consumer = Consumer(
            {**confluent(broker, authority), "group.id": "g", "auto.offset.reset": "earliest"}
        )
        for topic, count in (("of-aiokafka", 80), ("of-librdkafka", 100)):
            consumer.subscribe([topic])
            found: list[int] = []
            while len(found) < count:
                message = consumer.poll(20)
                assert message is not None and message.error() is None
                found.append(int(message.value() or b""))
            assert sorted(found) == list(range(count))
        consumer.close()
        assert "the session ended, because the client did not log in again" in broker.log_text()


def test_connections_that_never_log_in_are_closed_and_their_memory_returns(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    """After the TLS handshake the clients send nothing. The broker must close their connections ten
    seconds after they connected."""
    context = ssl.create_default_context(cafile=str(authority.file))
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            plain = stack.enter_context(
                socket.create_connection(("127.0.0.1", broker.net_port), timeout=20)
            )
            one = stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
        assert one.recv(1) == b""
    wait_until(lambda: broker.status().details["connections"] == 0, 20, "all are closed")
    assert "no login within 10000 ms" in broker.log_text()
