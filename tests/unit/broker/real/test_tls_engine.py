"""TLS without sockets: two engines exchange their bytes, also one byte at a time."""

from __future__ import annotations

import os
import random
import ssl
from collections import Counter
from pathlib import Path

import pytest

from broker.config import TlsFiles
from broker.real.certificates import checked_context
from broker.real.link_certificates import LinkCertificates
from broker.real.tls_engine import (
    HANDSHAKE_BYTES_MAX,
    CertificateRefused,
    RefusedByPeer,
    TlsEngine,
    TlsError,
)
from tests.harness.certificates import CLUSTER_ID, TestAuthority, new_test_authority


def client_context(authority: TestAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def pair(files: TlsFiles, authority: TestAuthority) -> tuple[TlsEngine, TlsEngine]:
    """Return a client and a server that have exchanged nothing yet."""
    client = TlsEngine(client_context(authority), server_name="localhost")
    return client, TlsEngine(checked_context(files, ()))


def shake(client: TlsEngine, server: TlsEngine) -> None:
    """Run both handshakes until neither side has anything to send."""
    client.handshake()
    while client.has_sealed or server.has_sealed:
        for one, other in ((client, server), (server, client)):
            if one.has_sealed:
                other.feed(memoryview(one.take_sealed()))
                if not other.is_established:
                    other.handshake()


def read(engine: TlsEngine, room_bytes: int = 1000) -> bytes:
    room, found = memoryview(bytearray(room_bytes)), bytearray()
    while count := engine.read_into(room):
        found += room[:count]
    return bytes(found)


def test_bytes_arrive_as_they_were_in_both_directions(authority: TestAuthority) -> None:
    client, server = pair(authority.write(), authority)
    shake(client, server)
    assert client.is_established
    assert server.is_established
    content = os.urandom(300_000)
    for one, other in ((client, server), (server, client)):
        sealed = one.seal(content)
        assert content[:100] not in sealed
        other.feed(memoryview(sealed))
        assert read(other) == content
        assert other.held_bytes == 0


def test_pitfall_29_what_a_record_holds_comes_without_another_byte(
    authority: TestAuthority,
) -> None:
    """The buffer is smaller than a TLS record. The rest stays in OpenSSL, where no socket event
    reports it, so the caller reads until nothing is left."""
    client, server = pair(authority.write(), authority)
    shake(client, server)
    server.feed(memoryview(client.seal(b"0123456789")))
    room = memoryview(bytearray(4))
    got = []
    while count := server.read_into(room):
        got.append(bytes(room[:count]))
    assert got == [b"0123", b"4567", b"89"]


def test_a_record_cut_anywhere_is_read_when_it_is_whole(authority: TestAuthority) -> None:
    client, server = pair(authority.write(), authority)
    shake(client, server)
    sealed = memoryview(client.seal(b"a frame"))
    for position in range(len(sealed) - 1):
        server.feed(sealed[position : position + 1])
        assert read(server) == b""
    server.feed(sealed[-1:])
    assert read(server) == b"a frame"


def test_a_changed_byte_is_noticed(authority: TestAuthority) -> None:
    client, server = pair(authority.write(), authority)
    shake(client, server)
    sealed = bytearray(client.seal(b"a frame"))
    sealed[-1] ^= 1
    server.feed(memoryview(sealed))
    with pytest.raises(TlsError):
        read(server)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\0\0\0\x20\0\x12\0\x04", "a client without TLS"),
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\0\x05hello", "handshake"),
    ],
)
def test_pitfall_30_what_does_not_speak_tls_is_named(
    authority: TestAuthority, sent: bytes, said: str
) -> None:
    _, server = pair(authority.write(), authority)

    def begin() -> None:
        server.feed(memoryview(sent))
        server.handshake()

    with pytest.raises(TlsError) as caught:
        begin()
    # The last case is a TLS record without a handshake message, for which OpenSSL words the error.
    assert said in str(caught.value) or sent[0] == 0x16


def test_a_handshake_without_end_is_refused_by_its_bytes(authority: TestAuthority) -> None:
    _, server = pair(authority.write(), authority)
    # The ClientHello has 16 MiB, in records of 16 KiB. OpenSSL would refuse it only when it is
    # complete.
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes((16 << 10) - 4)

    def send(count: int) -> None:
        for _ in range(count):
            server.feed(memoryview(record))

    send(HANDSHAKE_BYTES_MAX // len(record))
    with pytest.raises(TlsError, match="a TLS handshake of more than"):
        send(1)


def test_a_client_older_than_tls_1_2_is_refused(authority: TestAuthority) -> None:
    files = authority.write()
    old = client_context(authority)
    with pytest.deprecated_call():
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    # OpenSSL offers TLS 1.1 only at security level 0.
    old.set_ciphers("ALL:@SECLEVEL=0")
    client = TlsEngine(old, server_name="localhost")
    server = TlsEngine(checked_context(files, ()))
    client.handshake()
    server.feed(memoryview(client.take_sealed()))
    with pytest.raises(TlsError, match="unsupported protocol"):
        server.handshake()


def test_a_server_that_refuses_at_once_speaks_tls(authority: TestAuthority) -> None:
    """Its first record is an alert, not a handshake."""
    new, old = client_context(authority), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = TlsEngine(new, server_name="localhost"), TlsEngine(old)
    client.handshake()
    server.feed(memoryview(client.take_sealed()))
    with pytest.raises(TlsError):
        server.handshake()
    client.feed(memoryview(server.take_sealed()))
    with pytest.raises(RefusedByPeer, match="protocol version"):
        client.handshake()


def test_tls_1_2_works_for_clients(authority: TestAuthority) -> None:
    files = authority.write()
    older = client_context(authority)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    client = TlsEngine(older, server_name="localhost")
    server = TlsEngine(checked_context(files, ()))
    shake(client, server)
    server.feed(memoryview(client.seal(b"a frame")))
    assert read(server) == b"a frame"


def test_pitfall_31_an_end_that_is_told_and_what_comes_behind_it(
    authority: TestAuthority,
) -> None:
    client, server = pair(authority.write(), authority)
    shake(client, server)
    last = client.seal(b"the last frame")
    client.say_end()
    server.feed(memoryview(last + client.take_sealed()))
    assert read(server) == b"the last frame"
    assert server.has_ended
    # A half close: the other direction still works.
    client.feed(memoryview(server.seal(b"its answer")))
    assert read(client) == b"its answer"


def test_the_refused_side_learns_why(authority: TestAuthority, tmp_path: Path) -> None:
    other = new_test_authority(tmp_path / "other")
    client, server = pair(authority.write(), other)
    client.handshake()
    server.feed(memoryview(client.take_sealed()))
    server.handshake()
    client.feed(memoryview(server.take_sealed()))
    with pytest.raises(TlsError, match="the certificate is refused: unable to get local issuer"):
        client.handshake()
    server.feed(memoryview(client.take_sealed()))
    with pytest.raises(TlsError, match=r"the other side has refused: .*unknown ca"):
        server.handshake()


def link_certificates(files: TlsFiles, node_id: int) -> LinkCertificates:
    return LinkCertificates(files, CLUSTER_ID, node_id)


def brokers(authority: TestAuthority, reached: int | None = 2) -> tuple[TlsEngine, TlsEngine]:
    """Return the TLS engines of brokers 1 and 2. Broker 1 means to reach the broker `reached`."""
    one, other = (link_certificates(authority.write(f"broker-{each}"), each) for each in (1, 2))
    return one.to_broker(reached), other.from_broker()


@pytest.mark.parametrize("reached", [2, None])
def test_brokers_know_each_other_by_certificate(
    authority: TestAuthority, reached: int | None
) -> None:
    client, server = brokers(authority, reached)
    shake(client, server)
    assert (client.peer_id, server.peer_id) == (2, 1)
    server.feed(memoryview(client.seal(b"a vote")))
    assert read(server) == b"a vote"


def test_pitfall_14_another_broker_than_the_dialled_one_is_refused(
    authority: TestAuthority,
) -> None:
    client, server = brokers(authority, reached=3)
    with pytest.raises(CertificateRefused, match="is of broker 2, expected broker 3"):
        shake(client, server)
    assert (client.is_established, client.peer_id) == (False, None)


@pytest.mark.parametrize(
    ("names", "organisation", "said"),
    [
        (("collector",), CLUSTER_ID, "names no broker"),
        (("broker-1", "broker-2"), CLUSTER_ID, "names broker-1, broker-2"),
        (("broker-01",), CLUSTER_ID, "names no broker"),
        (("broker-1",), "another-cluster-id-0001", "is of another-cluster-id-0001"),
    ],
)
def test_pitfall_14_only_a_broker_of_this_cluster_is_one(
    authority: TestAuthority, names: tuple[str, ...], organisation: str, said: str
) -> None:
    """Our CA signs certificates for other purposes too. None of them identifies a broker."""
    _, server = brokers(authority)
    wrong = authority.leaf("wrong", names, organisation=organisation)
    path = authority.folder / "wrong.both"
    path.write_bytes(wrong.certificate + wrong.key)
    context = client_context(authority)
    context.load_cert_chain(path)
    client = TlsEngine(context, server_name="localhost")
    with pytest.raises(CertificateRefused, match=said):
        shake(client, server)
    assert (server.is_established, server.peer_id) == (False, None)


def test_pitfall_14_a_client_without_a_certificate_is_no_broker(
    authority: TestAuthority,
) -> None:
    _, server = brokers(authority)
    client = TlsEngine(client_context(authority), server_name="localhost")
    with pytest.raises(TlsError, match="peer did not return a certificate"):
        shake(client, server)
    assert not server.is_established


def test_brokers_speak_tls_1_3_only(authority: TestAuthority) -> None:
    files = authority.write("broker-1")
    older = client_context(authority)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    older.load_cert_chain(files.certificate, files.key)
    _, server = brokers(authority)
    client = TlsEngine(older, server_name="localhost")
    client.handshake()
    server.feed(memoryview(client.take_sealed()))
    with pytest.raises(TlsError, match="unsupported protocol"):
        server.handshake()


def flights(client: TlsEngine, server: TlsEngine) -> list[bytes]:
    """Return what the client sends in a handshake, up to its last bytes, which are not sent."""
    client.handshake()
    hello = client.take_sealed()
    server.feed(memoryview(hello))
    assert not server.handshake()
    client.feed(memoryview(server.take_sealed()))
    assert client.handshake()
    return [hello, client.take_sealed()]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one fault: bits, a cut, a doubled or a foreign part."""
    position = chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            changed = bytearray(data)
            for _ in range(chance.choice((1, 3, 20))):
                changed[chance.randrange(len(data))] ^= chance.randrange(1, 256)
            return bytes(changed)
        case 1:
            return data[:position] + data[position + chance.randrange(1, 200) :]
        case 2:
            return data[:position] + data[: chance.randrange(1, 300)] + data[position:]
    return data[:position] + chance.randbytes(chance.randrange(1, 400)) + data[position:]


@pytest.mark.parametrize("seed", range(8))
def test_pitfall_14_no_broken_handshake_makes_a_broker(authority: TestAuthority, seed: int) -> None:
    """Each attempt ends with TlsError, or waits for more bytes. None establishes the link with
    changed bytes."""
    chance = random.Random(seed)
    one, other = (link_certificates(authority.write(f"broker-{each}"), each) for each in (1, 2))
    outcomes: Counter[str] = Counter()
    for _ in range(40):
        server = other.from_broker()
        hello, last = flights(one.to_broker(2), server)
        if chance.random() < 0.5:
            # The fault is in the first flight, so it meets a new server.
            server, sent = other.from_broker(), mutated(hello, chance)
        else:
            sent = mutated(last, chance)
        step = chance.choice((len(sent), 1, 7, 100))
        try:
            for start in range(0, len(sent), step):
                server.feed(memoryview(sent[start : start + step]))
                if server.handshake():
                    break
        except TlsError:
            outcomes["refused"] += 1
        else:
            outcomes["established" if server.is_established else "waits"] += 1
            # Bytes behind a complete handshake are frames, or no TLS records at all.
            assert not server.is_established or sent.startswith(last)
        assert server.is_established == (server.peer_id is not None)
    assert outcomes["refused"] > 10


@pytest.mark.parametrize("seed", range(4))
def test_noise_after_the_handshake_ends_the_link(authority: TestAuthority, seed: int) -> None:
    chance = random.Random(seed)
    client, server = brokers(authority)
    shake(client, server)
    sealed = client.seal(chance.randbytes(chance.randrange(1, 60_000)))
    broken = bytearray(sealed)
    broken[chance.randrange(5, len(broken))] ^= chance.randrange(1, 256)
    server.feed(memoryview(broken))
    with pytest.raises(TlsError):
        while server.read_into(memoryview(bytearray(100_000))):
            pass
