"""TLS connections between brokers: each side accepts only a certificate of this cluster, and
reports whose certificate is wrong."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from broker.real.world import LoopWorld
from broker.world import Address, End
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.unit.broker.real.test_dialling import LOOPBACK, Heard, until
from tests.unit.broker.real.tls_world import (
    UNREAD_BYTES_MAX,
    Listening,
    frame,
    in_thread,
    let_end,
)


def problems(world: LoopWorld) -> list[str]:
    return [f"{one.code}: {one.text}" for one in world.connection_problems()]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Return the fields of all log lines so far."""
    return "\n".join(str(vars(one)) for one in caplog.records)


@pytest.mark.parametrize("names", [None, ("broker-1",), ("mill-1.example.org", "broker-1")])
def test_brokers_link_over_tls(
    runner: asyncio.Runner, authority: TestAuthority, names: tuple[str, ...] | None
) -> None:
    """Pitfall 28: the host name and the address of the other broker need not be in its
    certificate."""

    async def run() -> None:
        there = Listening(authority, "BROKER")
        authority.write("broker-1", authority.leaf("broker-1", names))
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
    # A program without any certificate may be no broker, so it is only logged.
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


def test_pitfall_24_the_dialled_broker_has_an_ended_certificate(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """The other broker names it. With a new certificate it is linked again without a restart."""

    async def run() -> None:
        there = Listening(authority, "BROKER")
        let_end(there.world._links, authority, 1)
        other = there.other_broker(authority.write("broker-2"))
        address, refused = Address(LOOPBACK, there.port), Heard()
        other.dial(address, refused, node_id=1)
        await until(lambda: refused.ends)
        assert refused.ends == [End.CLOSED]
        assert problems(other) == [
            f"link_refused: broker 1 at {address} shows a certificate that has ended: run "
            "`./millrace cert renew` for this broker, or correct the clock of a host"
        ]
        (own,) = problems(there.world)
        assert own.startswith("link_certificate: the certificate of this broker, ")
        authority.write("broker-1")
        linked = Heard()
        other.dial(address, linked, node_id=1)
        await until(lambda: linked.link and there.made[-1].link)
        linked.link.send([frame(b"a vote")])
        await until(lambda: there.made[-1].frames)
        there.made[-1].link.send([frame(b"granted")])
        await until(lambda: linked.frames)
        assert problems(other) + problems(there.world) == []
        linked.link.close()
        there.close()
        other.stop()

    runner.run(run())


def test_pitfall_24_the_dialling_broker_has_an_ended_certificate(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """Its requests are not read. Both sides name the certificate."""

    async def run() -> None:
        there = Listening(authority, "BROKER")
        other = there.other_broker(authority.write("broker-2"))
        let_end(other._links, authority, 2)
        heard = Heard()
        link = other.dial(Address(LOOPBACK, there.port), heard, node_id=1)
        await until(lambda: heard.link)
        link.send([frame(b"a fetch")])
        await until(lambda: heard.ends and there.made[0].ends)
        assert there.made[0].frames == []
        (said,) = problems(there.world)
        assert f"a peer at {LOOPBACK} shows a certificate that has ended" in said
        assert "ended on 1970-01-02" in problems(other)[0]
        there.close()
        other.stop()

    runner.run(run())


def test_a_replaced_certificate_leaves_open_links_alone(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    def serial(link: Heard) -> str:
        shown = link.link._engine._tls.getpeercert()
        return str(shown["serialNumber"])

    async def run() -> None:
        there = Listening(authority, "BROKER")
        other = there.other_broker(authority.write("broker-2"))
        made: list[Heard] = []

        async def link() -> Heard:
            made.append(Heard())
            other.dial(Address(LOOPBACK, there.port), made[-1], node_id=1)
            await until(lambda: made[-1].link and made[-1].link.is_established)
            return made[-1]

        first = await link()
        authority.write("broker-1")
        second = await link()
        assert serial(first) != serial(second)
        first.link.send([frame(b"still here")])
        await until(lambda: any(one.frames for one in there.made))
        for one in made:
            one.link.close()
        there.close()
        other.stop()

    runner.run(run())


@pytest.mark.parametrize(
    "sent", [frame(b"\0\x34\0\x02\0\0\0\x01\0\x02me"), b"GET / HTTP/1.1\r\n\r\n"]
)
def test_pitfall_30_plain_bytes_on_a_listener_for_brokers(
    runner: asyncio.Runner, authority: TestAuthority, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    """For example, a broker whose settings have no `link_tls`."""

    async def run() -> None:
        there = Listening(authority, "BROKER")
        with there.plain() as client:
            client.sendall(sent)
            await until(lambda: there.made and there.made[0].ends)
            assert there.made[0].frames == []
        assert f"a peer at {LOOPBACK} connects to the listener BROKER without TLS" in logged(caplog)
        assert problems(there.world) == []
        there.close()

    runner.run(run())


def test_pitfall_30_a_broker_without_tls_is_named_by_the_others(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """A plain listener closes the connection, because the first bytes of TLS are no frame."""

    async def run() -> None:
        there = Listening(authority, "BROKER")
        other = there.other_broker(authority.write("broker-2"))
        with socket.create_server((LOOPBACK, 0)) as served:
            address = Address(LOOPBACK, served.getsockname()[1])
            for _ in range(3):
                heard = Heard()
                other.dial(address, heard, node_id=3)
                plain = (await in_thread(served.accept))[0]
                await in_thread(lambda plain=plain: plain.recv(10_000))  # type: ignore[misc]
                plain.close()
                await until(lambda heard=heard: heard.ends)  # type: ignore[misc]
                assert heard.ends == [End.EOF]
                heard.link.close()
        (said,) = problems(other)
        assert f"broker 3 at {address} closes the connection during the TLS handshake" in said
        there.close()
        other.stop()

    runner.run(run())


def test_pitfall_33_a_follower_that_does_not_read(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """The leader's memory has the same limit as for clients."""

    async def run() -> None:
        there = Listening(authority, "BROKER")
        other = there.other_broker(authority.write("broker-2"))
        heard = Heard()
        other.dial(Address(LOOPBACK, there.port), heard, node_id=1)
        await until(lambda: heard.link and heard.link.is_established and there.made)
        heard.link.pause()
        await until(lambda: there.made[0].link.is_established)
        link, sent = there.made[0].link, 0
        while not there.made[0].ends:
            link.send([bytes(100_000)])
            sent += 100_000
            await asyncio.sleep(0)
        assert there.made[0].ends == [End.CLOSED]
        assert f"connection.max.unread.bytes={UNREAD_BYTES_MAX}" in there.made[0].reason
        assert sent > UNREAD_BYTES_MAX
        heard.link.close()
        there.close()
        other.stop()

    runner.run(run())
