"""TLS connections between brokers: each side accepts only a certificate of this cluster."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

from broker.world import Address, End
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.unit.broker.real.test_dialling import LOOPBACK, Heard, until
from tests.unit.broker.real.tls_world import Listening, frame, in_thread


def test_brokers_link_over_tls(runner: asyncio.Runner, authority: TestAuthority) -> None:
    async def run() -> None:
        there = Listening(authority, "BROKER")
        heard = Heard()
        other = there.other_broker(authority.write("broker-2"))
        other.dial(Address(LOOPBACK, there.port), heard)
        await until(lambda: heard.link)
        heard.link.send([frame(b"a vote")])
        await until(lambda: there.made and there.made[0].frames)
        assert there.made[0].frames == [b"a vote"]
        there.made[0].link.send([frame(b"granted")])
        await until(lambda: heard.frames)
        assert heard.frames == [b"granted"]
        heard.link.close()
        await until(lambda: there.made[0].ends)
        assert there.made[0].ends == [End.EOF]
        there.close()
        other.stop()

    runner.run(run())


def test_pitfall_14_a_client_is_no_broker(
    runner: asyncio.Runner, authority: TestAuthority, tmp_path: Path
) -> None:
    """The broker reads no frame of a client without a certificate, with one of another CA, or with
    a client certificate of our CA."""
    foreign = new_test_authority(tmp_path / "foreign")
    stranger, collector = tmp_path / "stranger.pem", tmp_path / "collector.pem"
    for path, pair in (
        (stranger, foreign.leaf("broker-2")),
        (collector, authority.leaf("collector")),
    ):
        path.write_bytes(pair.certificate + pair.key)

    async def run() -> None:
        there = Listening(authority, "BROKER")
        for shown in (None, stranger, collector):
            context = ssl.create_default_context(cafile=authority.file)
            if shown is not None:
                context.load_cert_chain(shown)

            def talk(context: ssl.SSLContext = context) -> None:
                with context.wrap_socket(there.plain(), server_hostname=LOOPBACK) as client:
                    # In TLS 1.3, the client's handshake is complete before the server has checked
                    # the certificate.
                    client.sendall(frame(b"a vote"))
                    assert client.recv(1) == b""

            # The client gets an alert, or the connection just ends.
            with suppress(OSError):
                await in_thread(talk)
        await until(lambda: len(there.made) == 3 and all(one.ends for one in there.made))
        assert [one.frames for one in there.made] == [[], [], []]
        assert "peer did not return a certificate" in there.made[0].reason
        assert "the certificate is refused" in there.made[1].reason
        assert "a certificate of ['collector']" in there.made[2].reason
        there.close()

    runner.run(run())


def test_a_broker_that_is_not_of_the_cluster_gets_no_request(
    runner: asyncio.Runner, authority: TestAuthority, tmp_path: Path
) -> None:
    """The connecting side checks the certificate before it sends anything."""
    foreign = new_test_authority(tmp_path / "foreign")

    async def run() -> None:
        there = Listening(foreign, "BROKER")
        heard = Heard()
        other = there.other_broker(authority.write("broker-2"))
        link = other.dial(Address(LOOPBACK, there.port), heard)
        await until(lambda: heard.link)
        link.send([frame(b"a secret")])
        await until(lambda: heard.ends)
        assert heard.ends == [End.CLOSED]
        assert "the certificate is refused" in heard.reason
        await until(lambda: there.made[0].ends)
        assert there.made[0].frames == []
        there.close()
        other.stop()

    runner.run(run())
