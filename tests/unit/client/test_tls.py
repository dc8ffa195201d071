"""Our client over TLS: which brokers it accepts, and the messages of its errors."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

from protocol.client.connection import Connection
from protocol.client.errors import BrokerUnreachable, EntryRefused
from protocol.client.tls import ClientTls, TlsFileError, TlsSettings, client_context
from tests.harness.certificates import TestAuthority, new_test_authority

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return new_test_authority(tmp_path)


def refusal(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    server: ssl.SSLContext | None,
    client: TlsSettings | None,
    host: str = "127.0.0.1",
) -> str:
    """Return the client's error message when it fails to connect. `server` is the TLS context of
    the server, or None for a server without TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server is None:
            # A broker without TLS reads the size of a frame, finds it invalid, and closes the
            # connection.
            await reader.read(4)
            writer.close()
        else:
            await reader.read(4)
            writer.close()

    async def run() -> str:
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as there:
            port = there.sockets[0].getsockname()[1]
            tls = None if client is None else client_context(client)
            with pytest.raises(BrokerUnreachable) as caught:
                await Connection.open(
                    host,
                    port,
                    client_id="me",
                    timeout_ms=5_000,
                    tls=tls,
                )
            return str(caught.value)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


def server_context(authority: TestAuthority, names: tuple[str, ...]) -> ssl.SSLContext:
    files = authority.write(pair=authority.leaf(names=names))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@LOOPS
def test_a_broker_of_another_ca_is_refused(
    authority: TestAuthority, tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    other = new_test_authority(tmp_path / "other")
    server = server_context(authority, ("127.0.0.1",))
    said = refusal(new_loop, server, TlsSettings(ca=str(other.file)))
    assert "the broker's certificate is refused: unable to get local issuer certificate" in said
    assert said.endswith("; put the CA of the cluster into cluster.security.ca")


@LOOPS
def test_pitfall_28_a_broker_of_another_name_is_refused(
    authority: TestAuthority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The client connects to an IP address, but the certificate names only a host."""
    server = server_context(authority, ("localhost",))
    said = refusal(new_loop, server, TlsSettings(ca=str(authority.file)))
    assert "the broker's certificate is refused: IP address mismatch" in said
    assert "connect to a name of the certificate (cluster.bootstrap_servers" in said


def test_pitfall_28_a_dot_at_the_end_of_a_name_is_no_part_of_it(
    authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that ends with a dot is looked up as it is, and no certificate has the dot (librdkafka
    2.13)."""
    find = socket.getaddrinfo

    def found(host: str, *others: Any, **more: Any) -> Any:
        return find("127.0.0.1" if host == "mill.example.org." else host, *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    server = server_context(authority, ("mill.example.org",))
    said = refusal(
        asyncio.new_event_loop, server, TlsSettings(ca=str(authority.file)), "mill.example.org."
    )
    assert "certificate" not in said
    assert "closed the connection" in said


@LOOPS
@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (-10, "certificate has expired; renew the certificate of the broker"),
        (10, "certificate is not yet valid; set the clock of this machine"),
    ],
    ids=["ended", "not yet valid"],
)
def test_a_certificate_out_of_its_time_is_refused(
    authority: TestAuthority,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    begin: int,
    said: str,
) -> None:
    pair = authority.leaf(days=2, now=datetime.now(UTC) + timedelta(days=begin))
    files = authority.write(pair=pair)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    assert said in refusal(new_loop, server, TlsSettings(ca=str(authority.file)))


@LOOPS
def test_pitfall_30_a_broker_without_tls_is_named(
    authority: TestAuthority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    said = refusal(new_loop, None, TlsSettings(ca=str(authority.file)))
    assert "the connection ended during the TLS handshake; does this port speak TLS?" in said


def test_pitfall_30_a_client_without_tls_learns_of_it(authority: TestAuthority) -> None:
    server = server_context(authority, ("127.0.0.1",))
    said = refusal(asyncio.new_event_loop, server, None)
    assert said.endswith("; if this listener uses TLS, set cluster.security")


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file or directory"), (b"nonsense", "expected certificates in PEM format")],
)
def test_a_ca_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TlsFileError, match=said) as caught:
        client_context(TlsSettings(ca=str(path)))
    assert str(path) in str(caught.value)


def test_a_changed_file_of_cas_is_read_again(authority: TestAuthority, tmp_path: Path) -> None:
    """A part needs no restart for a new CA. A half-written file changes nothing."""
    ca = tmp_path / "bundle.pem"
    client = ClientTls(TlsSettings(ca=str(ca)))
    with pytest.raises(EntryRefused, match=f"{ca}: No such file"):
        client.context()
    ca.write_bytes(authority.file.read_bytes())
    first = client.context()
    assert client.context() is first
    assert len(first.get_ca_certs()) == 1
    other = new_test_authority(tmp_path / "other")
    ca.write_bytes(b"-----BEGIN CERTIFICATE-----")
    assert client.context() is first
    ca.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
    assert len(client.context().get_ca_certs()) == 2


def test_a_client_certificate_and_the_key_of_another(authority: TestAuthority) -> None:
    files, other = authority.write(), authority.leaf()
    Path(files.key).write_bytes(other.key)
    with pytest.raises(TlsFileError, match="key values mismatch; expected a certificate and its"):
        client_context(TlsSettings(ca=files.ca, certificate=files.certificate, key=files.key))


def test_a_client_shows_its_certificate_to_a_broker_that_asks_for_one(
    authority: TestAuthority,
) -> None:
    server = server_context(authority, ("127.0.0.1",))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.file)
    files = authority.write("client")
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(str(writer.get_extra_info("peercert")["subject"]))
        writer.close()

    async def run() -> None:
        shown = TlsSettings(ca=files.ca, certificate=files.certificate, key=files.key)
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as there:
            port = there.sockets[0].getsockname()[1]
            with pytest.raises(BrokerUnreachable):
                await Connection.open(
                    "127.0.0.1", port, client_id="me", timeout_ms=5_000, tls=client_context(shown)
                )

    asyncio.run(run())
    assert "('commonName', 'client')" in seen[0]
