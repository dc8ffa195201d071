"""Join files at real brokers over TLS: two hosts at once, an end, and tools that ignore them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin

from appliance.enrol.entering import MillTarget, dial_all, is_accepted, look, replace_secret
from appliance.enrol.mill_side import Enrolment, MillEntry, enrol_all
from appliance.enrol.rights import commit_interval_ms
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


def target(
    brokers: ClusterProcesses, authority: TestAuthority, user: str, *numbers: int
) -> MillTarget:
    """Return the listeners of these brokers, in this order."""
    found = [brokers.brokers[number] for number in numbers]
    addresses = tuple((one.host, one.net_port) for one in found)
    return MillTarget(addresses, str(authority.file), user, Mechanism.SHA_512)


def end_of(brokers: ClusterProcesses, user: str) -> int:
    """Return the end of a user's join file; 0 for another credential."""

    async def ask() -> int:
        cluster = Cluster(brokers.bootstrap, client_id="look")
        await cluster.start(10_000)
        try:
            return (await describe_enrolments(cluster, [user]))[user][Mechanism.SHA_512]
        finally:
            await cluster.close()

    return asyncio.run(ask())


def enrol(
    brokers: ClusterProcesses, authority: TestAuthority, user: str, valid_ms: int = DAY_MS
) -> None:
    """Write the credential of a join file, as `enrol` does. Every broker knows it afterwards."""

    async def write() -> None:
        cluster = Cluster(brokers.bootstrap, client_id="enrol")
        await cluster.start(10_000)
        try:
            mechanism = Mechanism.SHA_512
            await set_password(cluster, user, SECRET, mechanism, enrolment_ms=valid_ms)
        finally:
            await cluster.close()

    asyncio.run(write())
    places = [target(brokers, authority, user, number) for number in brokers.brokers]

    def all_know() -> bool:
        return all(asyncio.run(is_accepted(one, SECRET)) for one in places)

    wait_until(all_know, 30, "every broker knows the user")


def test_the_collectors_of_one_command_share_the_interval_of_all(
    brokers: ClusterProcesses,
) -> None:
    """A thousand that are enrolled together must commit 200 times a second in all, not 1,400."""
    names = [f"many-{number}" for number in range(12)]

    async def enrolled() -> list[int]:
        cluster = Cluster(brokers.bootstrap, client_id="enrol")
        await cluster.start(10_000)
        try:
            asked = Enrolment("many", None, DAY_MS)
            files = enrol_all(cluster, names, asked, MillEntry((), None), {})
            return [one.commit_interval_ms async for one in files]
        finally:
            await cluster.close()

    first, *others = asyncio.run(enrolled())
    assert first >= commit_interval_ms(len(names))
    assert others == [first] * (len(names) - 1)


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

    for number in range(6):
        user = f"collector.web-{number}"
        enrol(brokers, authority, user)
        first, second, secret = asyncio.run(race(user))
        assert (first + second, secret) == (1, False), user


def test_a_join_file_ends(brokers: ClusterProcesses, authority: TestAuthority) -> None:
    user = "collector.late"
    enrol(brokers, authority, user, 15_000)
    where = target(brokers, authority, user, 1)
    wait_until(
        lambda: not asyncio.run(is_accepted(where, SECRET)), 60, "the brokers refuse the secret"
    )
    enrol(brokers, authority, user)
    assert asyncio.run(is_accepted(where, SECRET))


def test_a_host_sees_all_brokers_and_no_topic(
    brokers: ClusterProcesses, authority: TestAuthority
) -> None:
    enrol(brokers, authority, "collector.look")
    where = target(brokers, authority, "collector.look", 2)
    seen = asyncio.run(look(where, SECRET))
    assert (seen.broker_count, list(seen.unreachable)) == (3, [])


def test_pitfall_34_an_advertised_address_that_cannot_be_reached_is_named(
    brokers: ClusterProcesses, authority: TestAuthority
) -> None:
    enrol(brokers, authority, "collector.dial")
    where = target(brokers, authority, "collector.dial", 1)
    advertised = {1: where.addresses[0], 7: ("127.0.0.1", free_port())}
    (lost,) = asyncio.run(dial_all(where, SECRET, advertised))
    assert (lost.node_id, lost.address) == (7, f"127.0.0.1:{advertised[7][1]}")
    assert "refused" in lost.reason


def test_librdkafka_ignores_what_it_does_not_know(
    brokers: ClusterProcesses, authority: TestAuthority
) -> None:
    """The answer has a tagged field of ours for the user of a join file. A password that another
    tool writes ends the enrolment."""
    user = "collector.rd"
    module: Any = confluent_admin
    enrol(brokers, authority, user)
    client = module.AdminClient({"bootstrap.servers": brokers.bootstrap})
    found = client.describe_user_scram_credentials([user])[user].result(20)
    assert [one.iterations for one in found.scram_credential_infos] == [8_192]
    info = module.ScramCredentialInfo(module.ScramMechanism.SCRAM_SHA_512, 8_192)
    change = module.UserScramCredentialUpsertion(user, info, b"of a person")
    assert end_of(brokers, user)
    client.alter_user_scram_credentials([change])[user].result(20)

    wait_until(lambda: end_of(brokers, user) == 0, 30, "the enrolment is over")
