"""A TLS listener of a broker on real sockets, and clients for it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

import pytest

from broker.config import BrokerConfig, Listener, TlsFiles
from broker.real import link_certificates
from broker.real.certificates import Certificates
from broker.real.link_certificates import LinkCertificates, checked_contexts
from broker.real.tls_files import PemFiles
from broker.real.world import LoopWorld
from tests.harness.certificates import CLUSTER_ID, TestAuthority
from tests.harness.ports import free_port
from tests.unit.broker.real.test_dialling import LOOPBACK, PATIENCE_S, Heard, _die

FRAME_BYTES_MAX = 1 << 20
UNREAD_BYTES_MAX = 8 << 20


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Listening:
    """A TLS listener of a broker whose receivers record their events."""

    def __init__(
        self,
        authority: TestAuthority,
        name: str = "NET",
        receiver: Callable[[], Heard] = Heard,
    ) -> None:
        self.port = free_port()
        self.authority = authority
        self.made: list[Heard] = []
        self._receiver = receiver
        self.world = self._world(authority.write("broker-1"), name, 1)
        self.listening = self.world.listen(name, self.address, self._take)
        self.listening.open()

    @property
    def address(self) -> Listener:
        return Listener(
            host=LOOPBACK,
            port=self.port,
            advertised_host=LOOPBACK,
            advertised_port=self.port,
            security_protocol="SSL",
        )

    def _world(self, files: TlsFiles, name: str, node_id: int) -> LoopWorld:
        loop = asyncio.get_running_loop()
        if name == "BROKER":
            links = LinkCertificates(files, self.authority.cluster_id, node_id)
            return LoopWorld(loop, _die, FRAME_BYTES_MAX, UNREAD_BYTES_MAX, None, links)
        config = BrokerConfig(
            part="broker-1",
            node_id=1,
            cluster_id=CLUSTER_ID,
            log_dir="",
            listeners={name: self.address},
            status_host="",
            status_port=0,
            tls=files,
        )
        certificates = Certificates(config, files)
        return LoopWorld(loop, _die, FRAME_BYTES_MAX, UNREAD_BYTES_MAX, certificates)

    def other_broker(self, files: TlsFiles, node_id: int = 2) -> LoopWorld:
        """Return the world of another broker, which connects to this one."""
        return self._world(files, "BROKER", node_id)

    def _take(self) -> Heard:
        self.made.append(self._receiver())
        return self.made[-1]

    async def client(self, files: TlsFiles | None = None) -> ssl.SSLSocket:
        """Return a client that has completed its handshake, with a certificate if files are
        given."""
        context = ssl.create_default_context(cafile=self.authority.file)
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        client: ssl.SSLSocket = await in_thread(
            lambda: context.wrap_socket(self.plain(), server_hostname=LOOPBACK)
        )
        return client

    def plain(self) -> socket.socket:
        """Return a client that has sent nothing yet."""
        return socket.create_connection((LOOPBACK, self.port), PATIENCE_S)

    def close(self) -> None:
        self.listening.close()
        for one in self.made:
            if one.link is not None:
                one.link.close()
        self.world.stop()


def let_end(links: LinkCertificates | None, authority: TestAuthority, node_id: int) -> None:
    """Let the certificate of a running broker end, in 1970. It was loaded while it was valid."""
    assert links is not None
    pem = PemFiles(authority.write(f"over-{node_id}", authority.over()), "link_tls")
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(link_certificates, "try_handshake", lambda asking, answering: None)
        made = checked_contexts(pem, authority.cluster_id, node_id)
    links._watched._value = made._replace(ends_at_s=86_400.0)


async def in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def received(client: socket.socket, count: int) -> bytes:
    def read() -> bytes:
        data = bytearray()
        while len(data) < count:
            more = client.recv(count - len(data))
            assert more, f"the other side ended after {len(data)} bytes"
            data += more
        return bytes(data)

    return bytes(await in_thread(read))
