"""Join files at real brokers over TLS: two hosts at once, an end, and tools that ignore them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin

from appliance.enrol.entering import MillTarget, dial_all, is_accepted, look, replace_secret
from protocol.client.cluster import Cluster
from protocol.client.user_admin import describe_enrolments, set_password
from protocol.security.scram import Mechanism
from tests.harness.certificates import TestAuthority
from tests.harness.cluster import ClusterProcesses
from tests.harness.ports import free_port
from tests.harness.secured import give_password
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

SECRET = "secret of a join file"
DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("cluster")
    with ClusterProcesses(folder, authority=authority, needs_login=True) as running:
        give_password(running.bootstrap, "shop", "password of a super user")
        yield running


def enrol(brokers: ClusterProcesses, user: str, valid_ms: int = DAY_MS) -> int:
    """Write the credential of a join file, as `enrol` does. Return its end."""

    async def write() -> int:
        cluster = Cluster(brokers.bootstrap, client_id="enrol")
        await cluster.start(10_000)
        try:
            mechanism = Mechanism.SHA_512
            await set_password(cluster, user, SECRET, mechanism, enrolment_ms=valid_ms)
            return (await describe_enrolments(cluster, [user]))[user][mechanism]
        finally:
            await cluster.close()

    return asyncio.run(write())


def target(
    brokers: ClusterProcesses, authority: TestAuthority, user: str, *numbers: int
) -> MillTarget:
    """Return the listeners of these brokers, in this order."""
    found = [brokers.brokers[number] for number in numbers]
    addresses = tuple((one.host, one.net_port) for one in found)
    return MillTarget(addresses, str(authority.file), user, Mechanism.SHA_512)


def test_pitfall_35_of_two_hosts_at_different_brokers_one_wins(
    brokers: ClusterProcesses, authority: TestAuthority
) -> None:
    """Each pair replaces the secret of one file at the same time. One of the two passwords works in
    the end, and the secret does not."""

    async def race(user: str) -> list[bool]:
        pair = [target(brokers, authority, user, *order) for order in ((1, 2, 3), (3, 2, 1))]
        passwords = ["of the first host", "of the second host"]
        changes = [
            replace_secret(one, SECRET, password)
            for one, password in zip(pair, passwords, strict=True)
        ]
        await asyncio.gather(*changes)
        return [await is_accepted(pair[0], one) for one in (*passwords, SECRET)]

    winners = set()
    for number in range(6):
        user = f"collector.web-{number}"
        assert enrol(brokers, user) > DAY_MS
        first, second, secret = asyncio.run(race(user))
        assert (first + second, secret) == (1, False), user
        winners.add(first)
    assert winners


def test_a_join_file_ends(brokers: ClusterProcesses, authority: TestAuthority) -> None:
    user = "collector.late"
    enrol(brokers, user, 3_000)
    where = target(brokers, authority, user, 1)
    wait_until(
        lambda: not asyncio.run(is_accepted(where, SECRET)), 60, "the brokers refuse the secret"
    )
    enrol(brokers, user)
    assert asyncio.run(is_accepted(where, SECRET))


def test_a_host_sees_all_brokers_and_no_topic(
    brokers: ClusterProcesses, authority: TestAuthority
) -> None:
    enrol(brokers, "collector.look")
    where = target(brokers, authority, "collector.look", 2)
    seen = asyncio.run(look(where, SECRET))
    assert (seen.broker_count, list(seen.unreachable)) == (3, [])


def test_pitfall_34_an_advertised_address_that_cannot_be_reached_is_named(
    brokers: ClusterProcesses, authority: TestAuthority
) -> None:
    enrol(brokers, "collector.dial")
    where = target(brokers, authority, "collector.dial", 1)
    advertised = {1: where.addresses[0], 7: ("127.0.0.1", free_port())}
    (lost,) = asyncio.run(dial_all(where, SECRET, advertised))
    assert (lost.node_id, lost.address) == (7, f"127.0.0.1:{advertised[7][1]}")
    assert "refused" in lost.reason


def test_librdkafka_ignores_what_it_does_not_know(brokers: ClusterProcesses) -> None:
    """The answer has a tagged field of ours for the user of a join file. A password that another
    tool writes ends the enrolment."""
    user = "collector.rd"
    module: Any = confluent_admin
    enrol(brokers, user)
    client = module.AdminClient({"bootstrap.servers": brokers.bootstrap})
    found = client.describe_user_scram_credentials([user])[user].result(20)
    assert [one.iterations for one in found.scram_credential_infos] == [8_192]
    info = module.ScramCredentialInfo(module.ScramMechanism.SCRAM_SHA_512, 8_192)
    change = module.UserScramCredentialUpsertion(user, info, b"of a person")
    client.alter_user_scram_credentials([change])[user].result(20)

    async def ends() -> int:
        cluster = Cluster(brokers.bootstrap, client_id="look")
        await cluster.start(10_000)
        try:
            return (await describe_enrolments(cluster, [user]))[user][Mechanism.SHA_512]
        finally:
            await cluster.close()

    assert asyncio.run(ends()) == 0
