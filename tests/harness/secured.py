"""Steps that the tests of TLS and of logins share: write a user, and connect clients."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Sequence

from protocol.client.acl_admin import create_acls
from protocol.client.cluster import Cluster
from protocol.client.login import LoginSettings
from protocol.client.tls import TlsSettings
from protocol.client.user_admin import set_password
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.security.acl import AclEntry
from protocol.security.scram import ClientExchange, Mechanism, salted_password
from tests.harness.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, KafkaTools
from tests.harness.wire import WireClient


def give_password(
    bootstrap: str, user: str, password: str, mechanism: Mechanism = Mechanism.SHA_512
) -> None:
    """Write a user's credential through a listener that requires no login."""

    async def change() -> None:
        cluster = Cluster(bootstrap, client_id="admin")
        await cluster.start(10_000)
        await set_password(cluster, user, password, mechanism)
        await cluster.close()

    asyncio.run(change())


def allow(bootstrap: str, entries: Sequence[AclEntry]) -> None:
    """Create ACLs through a listener that requires no login."""

    async def change() -> None:
        cluster = Cluster(bootstrap, client_id="admin")
        await cluster.start(10_000)
        await create_acls(cluster, entries)
        await cluster.close()

    asyncio.run(change())


def wire_log_in(
    client: WireClient, user: str, password: str, mechanism: Mechanism = Mechanism.SHA_512
) -> None:
    """Log in on a connection whose every request the test controls."""
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism.sasl_name), 1).error_code == 0
    exchange = ClientExchange(user, mechanism.digest, secrets.token_bytes(24))
    told = client.ask(SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
    challenge = exchange.challenged(told.auth_bytes)
    salted = salted_password(password, challenge.salt, challenge.iterations, mechanism.digest)
    final = exchange.final(challenge, salted)
    told = client.ask(SaslAuthenticateRequest(auth_bytes=final), 2)
    assert told.error_code == 0, told
    exchange.verify(told.auth_bytes)


def brokers_found(
    bootstrap: str,
    tls: TlsSettings | None,
    login: LoginSettings | None = None,
    *,
    timeout_ms: int = 5_000,
) -> int:
    """Return the number of brokers that our client finds."""

    async def ask() -> int:
        cluster = Cluster(bootstrap, client_id="me", tls=tls, login=login)
        try:
            await cluster.start(timeout_ms)
            return len(cluster.current.brokers)
        finally:
            await cluster.close()

    return asyncio.run(ask())


def console_tools_write_and_read(tools: KafkaTools, settings: str) -> None:
    """Write two records with Kafka's console producer, and read them with its consumer.

    `settings` has the client's properties, one per line.
    """
    told = ("--command-config", tools.file("client.properties", settings))
    tools.run(CONSOLE_PRODUCER, "--topic", "console", *told, stdin="one\ntwo\n")
    read = ("--from-beginning", "--max-messages", "2")
    found = tools.run(CONSOLE_CONSUMER, "--topic", "console", *read, *told)
    assert found.split()[:2] == ["one", "two"]


def kcat_writes_and_reads(bootstrap: str, settings: Sequence[str]) -> None:
    """Write two records with kcat, and read them. `settings` are `key=value`."""
    options = [word for one in settings for word in ("-X", one)]
    kcat = ["kcat", "-b", bootstrap, *options, "-t", "kcat"]
    subprocess.run([*kcat, "-P"], input=b"one\ntwo\n", check=True, timeout=30)
    read = subprocess.run(
        [*kcat, "-C", "-e", "-q"], capture_output=True, check=True, timeout=30, text=True
    )
    assert read.stdout.split() == ["one", "two"]
