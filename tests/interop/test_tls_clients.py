"""Clients of all libraries over TLS, with three brokers that use TLS among themselves and are
killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from protocol.client.cluster import Cluster
from protocol.client.errors import BrokerUnreachable
from protocol.client.tls import TlsSettings
from protocol.security.acl import (
    USER_PREFIX,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from tests.harness import families
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.harness.cluster import ClusterProcesses
from tests.harness.secured import (
    allow,
    brokers_found,
    console_tools_write_and_read,
    give_password,
    kcat_writes_and_reads,
)
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.tools import KafkaTools
from tests.harness.verifiable.process import Family, Verifiable
from tests.harness.verifiable.scene import create_topics, finish, started_clients
from tests.harness.wait import wait_until
from tests.interop.test_three_brokers_clients import (
    EVERY_S,
    KILLS_LONG,
    SETTINGS,
    killed_by_turns,
)

pytestmark = pytest.mark.live

IN_SHORT = (*families.IN_SHORT, families.KAFKA_PYTHON)


def rights_of(family: Family) -> list[AclEntry]:
    """Return the ACLs that a family needs and no other. The user has the family's name."""
    needed = [
        (AclResource.TOPIC, topic, operation)
        for topic in family.topics
        for operation in (AclOperation.WRITE, AclOperation.READ)
    ]
    needed.append((AclResource.GROUP, f"{family.name}-readers", AclOperation.READ))
    if family.is_transactional:
        needed.append((AclResource.TRANSACTIONAL_ID, family.topics[1], AclOperation.WRITE))
    return [
        AclEntry(
            kind, name, PatternType.LITERAL, f"{USER_PREFIX}{family.name}", "*", operation,
            AclPermission.ALLOW,
        )
        for kind, name, operation in needed
    ]  # fmt: skip


def give_users(bootstrap: str, wanted: Sequence[Family]) -> None:
    """Create a user with its rights for each family. The listener waits for a super user."""
    give_password(bootstrap, *LOGIN)
    for family in wanted:
        give_password(bootstrap, family.name, LOGIN[1])
    allow(bootstrap, [one for family in wanted for one in rights_of(family)])


def run(
    folder: Path,
    wanted: Sequence[Family],
    kills: int,
    login: tuple[str, str] | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
    *,
    every_s: float = 0.0,
    has_own_users: bool = False,
) -> None:
    """Let these families work on three brokers with TLS, which are killed.

    With `login` the clients log in as this user, which is a super user. With `has_own_users` they
    log in as users of their own names, with exactly the rights that they need.
    """
    authority = new_test_authority(folder / "tls")
    made = ClusterProcesses(
        folder / "cluster",
        {**SETTINGS, **settings},
        authority=authority,
        needs_login=login is not None or has_own_users,
    )

    def started(family: Family) -> Verifiable:
        user = (family.name, LOGIN[1]) if has_own_users else login
        return Verifiable(family, made.net_bootstrap, folder, authority.file, user)

    with made as cluster:
        create_topics(cluster, wanted)
        if has_own_users:
            give_users(cluster.bootstrap, wanted)
        elif login is not None:
            give_password(cluster.bootstrap, *login)
        with started_clients(wanted, started) as clients:
            killed_by_turns(cluster, clients, kills, every_s, seeded("families over TLS"))
            faults = finish(cluster, clients, f"{kills} kills")
            assert not faults, faults
        log = cluster.log_text()
        assert "TLS" not in log, "a handshake failed"
        assert "authorization denied" not in log
        if settings:
            ended = log.count(SESSION_ENDED)
            tell(f"sessions: {ended} ended, because their clients did not log in again in time")
            assert ended, "no session ended"


LOGIN = ("shop", "a long password")
SESSION_ENDED = "the session ended, because the client did not log in again"
SHORT_SESSIONS = {"connections.max.reauth.ms": 5_000}
"""Every session ends several times, so each family must log in or connect again."""


def test_families_log_in_and_go_on_while_the_controller_is_killed(tmp_path: Path) -> None:
    run(tmp_path, IN_SHORT, 1, LOGIN, SHORT_SESSIONS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_families_log_in_and_go_on_while_brokers_are_killed(tmp_path: Path) -> None:
    """This test uses sessions of the usual length. kcat 1.7.1 never logs in again, and exits when
    all its connections have ended."""
    run(tmp_path, families.ALL, 3, LOGIN)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_all_families_with_their_rights_alone_while_a_broker_is_killed_every_twenty_seconds(
    tmp_path: Path,
) -> None:
    """Each family has a user with exactly the ACLs that it needs, and all sessions end after 10 s.
    Clients that do not log in again are closed and connect again.

    kcat is left out, because it exits when all its connections have ended, and does not log in
    again. kafka-python 3.0.12 is left out, because after nine kills it no longer used one of the
    brokers: a commit failed after a minute, and records expired after two. All other families used
    that broker. The cause was not found, and kafka-python was not tried with Kafka in this way.
    """
    wanted = [one for one in families.ALL if one not in (families.KCAT, families.KAFKA_PYTHON)]
    settings = {"connections.max.reauth.ms": 10_000}
    run(tmp_path, wanted, KILLS_LONG, settings=settings, every_s=EVERY_S, has_own_users=True)


def test_families_go_on_over_tls_while_the_controller_is_killed(tmp_path: Path) -> None:
    run(tmp_path, IN_SHORT, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_families_go_on_over_tls_while_brokers_are_killed(tmp_path: Path) -> None:
    run(tmp_path, families.ALL, 3)


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), tls=authority.write()) as running:
        yield running


def test_kafkas_console_tools(
    broker: BrokerProcess, authority: TestAuthority, tmp_path: Path
) -> None:
    console_tools_write_and_read(
        KafkaTools(tmp_path, broker.net_bootstrap),
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.file}\n",
    )


def test_kcat(broker: BrokerProcess, authority: TestAuthority) -> None:
    kcat_writes_and_reads(
        broker.net_bootstrap, ["security.protocol=SSL", f"ssl.ca.location={authority.file}"]
    )


def test_our_client_believes_its_ca_alone(
    broker: BrokerProcess, authority: TestAuthority, tmp_path: Path
) -> None:
    assert brokers_found(broker.net_bootstrap, TlsSettings(ca=str(authority.file))) == 1
    other = new_test_authority(tmp_path)
    with pytest.raises(BrokerUnreachable, match="certificate is refused: unable to get local"):
        brokers_found(broker.net_bootstrap, TlsSettings(ca=str(other.file)))


def test_a_client_without_tls_is_sent_away_and_the_log_says_why(broker: BrokerProcess) -> None:
    with pytest.raises(BrokerUnreachable, match="closed the connection"):
        brokers_found(broker.net_bootstrap, None)
    assert "a client without TLS came to a TLS listener" in broker.log_text()


def test_tls_on_a_plain_listener_is_named_in_the_log(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    with pytest.raises(BrokerUnreachable):
        brokers_found(broker.bootstrap, TlsSettings(ca=str(authority.file)))
    assert "a client speaks TLS, but this listener does not" in broker.log_text()


def test_a_client_that_dials_another_name_is_refused_by_itself(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """The certificate does not have the name to which the client connects. librdkafka and our
    client check that by default."""
    leaf = authority.leaf(names=("127.0.0.1",))
    with BrokerProcess(tmp_path, tls=authority.write("by-address", leaf)) as broker:
        by_name = f"localhost:{broker.net_port}"
        with pytest.raises(BrokerUnreachable, match="Hostname mismatch"):
            brokers_found(by_name, TlsSettings(ca=str(authority.file)))
        admin = AdminClient(
            {
                "bootstrap.servers": by_name,
                "security.protocol": "SSL",
                "ssl.ca.location": str(authority.file),
                "broker.address.family": "v4",
                "log_level": 0,
            }
        )
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)
        assert brokers_found(broker.net_bootstrap, TlsSettings(ca=str(authority.file))) == 1


def test_a_certificate_is_replaced_under_a_client_that_stays(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """The old connection stays open, and a new connection gets the new certificate."""
    files = authority.write("replaced")
    with BrokerProcess(tmp_path, tls=files) as broker:
        trusting = TlsSettings(ca=str(authority.file))

        async def talk() -> None:
            cluster = Cluster(broker.net_bootstrap, client_id="me", tls=trusting)
            await cluster.start(5_000)
            connection = await cluster.connection(1)
            authority.write("replaced")
            assert await asyncio.to_thread(brokers_found, broker.net_bootstrap, trusting) == 1
            assert "the certificate was replaced" in broker.log_text()
            assert await cluster.connection(1) is connection
            await cluster.metadata(refresh=True)
            await cluster.close()

        asyncio.run(talk())


@pytest.mark.parametrize("spoiled", ["certificate", "key"])
def test_a_broker_does_not_start_with_a_certificate_that_it_cannot_use(
    tmp_path: Path, authority: TestAuthority, spoiled: str
) -> None:
    files = authority.write(f"spoiled-{spoiled}")
    Path(getattr(files, spoiled)).write_text("nonsense")
    broker = BrokerProcess(tmp_path, tls=files)
    with pytest.raises(SystemExit, match="broker ended with 2"):
        broker.start()
    assert f"tls.{spoiled}: found" in broker.log_text()
    assert "in PEM format" in broker.log_text()


def test_idle_connections_stay_within_their_memory(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """A thousand idle connections may use 130 MiB. This test opens two hundred, so they may use a
    fifth of that."""
    with BrokerProcess(tmp_path, tls=authority.write("idle")) as broker:
        process = psutil.Process(broker.pid)
        before = process.memory_info().rss

        async def hold() -> int:
            trusting = TlsSettings(ca=str(authority.file))
            clusters = [
                Cluster(broker.net_bootstrap, client_id="idle", tls=trusting) for _ in range(20)
            ]
            for one in clusters:
                await one.start(10_000)
                for number in range(9):
                    await one.connection(1, one.new_purpose(str(number)))
            grown = process.memory_info().rss - before
            for one in clusters:
                await one.close()
            return grown

        grown = asyncio.run(hold())
        assert grown < 200 * (130 << 20) // 1_000
        wait_until(lambda: broker.status().details["connections"] == 0, 20, "all are closed")
