"""Pitfall 37: many clients behind one address go on, while connections from the same address flood
the broker and do not log in (KIP-612 limits addresses as a whole)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from protocol.client.connection import Connection
from protocol.client.login import ClientLogin, LoginRefused, LoginSettings
from protocol.client.tls import TlsSettings, client_context
from protocol.messages.metadata import MetadataRequest
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.secured import give_password
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

USER, PASSWORD = "shop", "correct-horse-battery"
CLIENTS = 300
SILENT_MAX = 200
"""The broker's `max.silent.connections` in this test, so that the flood reaches it."""
FLOOD = 3 * SILENT_MAX
TLS_ALONE, WRONG = 20, 20
"""The connections of the flood with TLS alone, and those with a wrong password."""
ROUNDS = 5
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    settings = {"max.silent.connections": SILENT_MAX}
    with BrokerProcess(folder, settings, tls=authority.write(), needs_login=True) as running:
        give_password(running.bootstrap, USER, PASSWORD)
        yield running


class Place:
    """One address that many clients share, and the broker that they connect to."""

    def __init__(self, broker: BrokerProcess, authority: TestAuthority) -> None:
        self.port = broker.net_port
        self.tls = client_context(TlsSettings(ca=str(authority.file)))
        self.right = ClientLogin(LoginSettings(USER, PASSWORD), random.Random(1))
        self.wrong = ClientLogin(LoginSettings(USER, "wrong-horse-battery"), random.Random(2))

    async def enter(self, login: ClientLogin | None) -> Connection:
        return await Connection.open(
            "127.0.0.1",
            self.port,
            client_id="behind a router",
            timeout_ms=TIMEOUT_MS,
            tls=self.tls,
            login=login,
        )

    @contextlib.asynccontextmanager
    async def clients(self) -> AsyncIterator[list[Connection]]:
        """Let the clients in, a few at a time."""
        found: list[Connection] = []
        try:
            while len(found) < CLIENTS:
                found += await asyncio.gather(*(self.enter(self.right) for _ in range(20)))
            yield found
        finally:
            for one in found:
                one.close()

    def flood(self, stack: contextlib.ExitStack) -> list[socket.socket]:
        """Open connections that send nothing. Return those that the broker has not yet closed."""
        made = [
            stack.enter_context(socket.create_connection(("127.0.0.1", self.port), 20))
            for _ in range(FLOOD)
        ]
        for one in made:
            one.setblocking(False)
        return made


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def all_answer(clients: list[Connection]) -> None:
    asked = (one.request(MetadataRequest(topics=[]), timeout_ms=TIMEOUT_MS) for one in clients)
    answers = await asyncio.gather(*asked)
    assert len(answers) == CLIENTS
    assert all(one.brokers for one in answers)


def test_pitfall_37_clients_go_on_while_their_address_floods_the_broker(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    """The flood has three kinds: connections without a byte, connections with TLS alone, and wrong
    passwords. Each client gets each answer, and none loses its connection."""
    place = Place(broker, authority)

    async def run() -> None:
        with contextlib.ExitStack() as stack:
            async with place.clients() as clients:
                with_tls = [await place.enter(None) for _ in range(TLS_ALONE)]
                refused = await asyncio.gather(
                    *(place.enter(place.wrong) for _ in range(WRONG)), return_exceptions=True
                )
                assert all(isinstance(one, LoginRefused) for one in refused), refused
                silent = place.flood(stack)
                # The limit on silent connections sends the others away, and not the clients.
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    while sum(map(is_closed, silent)) < FLOOD - SILENT_MAX:
                        await all_answer(clients)
                for _ in range(ROUNDS):
                    await all_answer(clients)
                assert not any(one.is_closed for one in clients)
                for one in with_tls:
                    one.close()

    asyncio.run(run())
    text = broker.log_text()
    assert f"max.silent.connections {SILENT_MAX} is reached" in text
    assert "login failed" in text


def test_the_address_is_served_again_after_the_flood(
    broker: BrokerProcess, authority: TestAuthority
) -> None:
    place = Place(broker, authority)

    async def run() -> None:
        with contextlib.ExitStack() as stack:
            place.flood(stack)
        await asyncio.to_thread(
            wait_until, lambda: broker.status().details["connections"] == 0, 30, "the flood is over"
        )
        async with place.clients() as clients:
            await all_answer(clients)

    asyncio.run(run())
