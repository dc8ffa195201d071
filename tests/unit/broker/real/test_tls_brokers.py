"""TLS connections between brokers: each side accepts only a certificate of this cluster, and says
whose is wrong."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from broker.real.world import LoopWorld
from broker.world import Address, End
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.unit.broker.real.test_dialling import LOOPBACK, Heard, until
from tests.unit.broker.real.tls_world import Listening, frame, in_thread


def problems(world: LoopWorld) -> list[str]:
    return [f"{one.code}: {one.text}" for one in world.link_problems()]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Return the fields of all log lines so far."""
    return "\n".join(str(vars(one)) for one in caplog.records)


def test_brokers_link_over_tls(runner: asyncio.Runner, authority: TestAuthority) -> None:
    async def run() -> None:
        there = Listening(authority, "BROKER")
        heard = Heard()
        other = there.other_broker(authority.write("broker-2"))
        link = other.dial(Address(LOOPBACK, there.port), heard, node_id=1)
        await until(lambda: heard.link)
        heard.link.send([frame(b"a vote")])
        await until(lambda: there.made and there.made[0].frames)
        assert there.made[0].frames == [b"a vote"]
        assert (there.made[0].link.peer_id, link.peer_id) == (2, 1)
        there.made[0].link.send([frame(b"granted")])
        await until(lambda: heard.frames)
        assert heard.frames == [b"granted"]
        heard.link.close()
        await until(lambda: there.made[0].ends)
        assert there.made[0].ends == [End.EOF]
        assert problems(other) + problems(there.world) == []
        there.close()
        other.stop()

    runner.run(run())


def test_pitfall_14_a_client_is_no_broker(
    runner: asyncio.Runner,
    authority: TestAuthority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
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

    async def run() -> list[list[str]]:
        there, found = Listening(authority, "BROKER"), []
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
            await until(lambda: there.made and there.made[-1].ends)
            found.append(problems(there.world))
        assert [one.frames for one in there.made] == [[], [], []]
        there.close()
        return found

    without, other_ca, other_part = runner.run(run())
    # A program without any certificate is possibly no broker, so it is only logged.
    assert without == []
    assert other_ca == [
        f"link_refused: a peer at {LOOPBACK} shows a certificate that another CA has signed: all "
        "brokers need certificates of the same mill's CA"
    ]
    assert other_part == [
        f"link_refused: a peer at {LOOPBACK} shows a certificate that names no broker, expected "
        "one name of the form broker-N: run `./millrace cert renew` for this broker"
    ]
    assert "shows no certificate, which is refused" in logged(caplog)


def test_a_broker_that_is_not_of_the_cluster_gets_no_request(
    runner: asyncio.Runner,
    authority: TestAuthority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connecting side checks the certificate before it sends anything."""
    foreign = new_test_authority(tmp_path / "foreign")

    async def run() -> None:
        there = Listening(foreign, "BROKER")
        heard = Heard()
        other = there.other_broker(authority.write("broker-2"))
        address = Address(LOOPBACK, there.port)
        link = other.dial(address, heard, node_id=1)
        await until(lambda: heard.link)
        link.send([frame(b"a secret")])
        await until(lambda: heard.ends)
        assert heard.ends == [End.CLOSED]
        assert "the certificate is refused" in heard.reason
        assert problems(other) == [
            f"link_refused: broker 1 at {address} shows a certificate that another CA has signed: "
            "all brokers need certificates of the same mill's CA"
        ]
        await until(lambda: there.made[0].ends)
        assert there.made[0].frames == []
        # Every program that does not know the CA refuses its certificates, so this is only logged.
        assert problems(there.world) == []
        assert f"a peer at {LOOPBACK} refuses the certificate of this broker" in logged(caplog)
        there.close()
        other.stop()

    runner.run(run())


def test_pitfall_14_the_wrong_broker_at_an_address_gets_no_request(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    async def run() -> None:
        there = Listening(authority, "BROKER")
        heard = Heard()
        other = there.other_broker(authority.write("broker-2"))
        address = Address(LOOPBACK, there.port)
        link = other.dial(address, heard, node_id=3)
        await until(lambda: heard.link)
        link.send([frame(b"a fetch")])
        await until(lambda: heard.ends)
        assert problems(other) == [
            f"link_refused: broker 3 at {address} shows a certificate that is of broker 1, "
            "expected broker 3: run `./millrace cert renew` for this broker"
        ]
        await until(lambda: there.made[0].ends)
        assert there.made[0].frames == []
        there.close()
        other.stop()

    runner.run(run())
