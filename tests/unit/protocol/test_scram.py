"""SCRAM: the vectors of the RFCs, both sides together, and everything that is refused."""

from __future__ import annotations

import inspect
import random
from base64 import b64decode, b64encode

import pytest

from protocol.security import scram
from protocol.security.scram import (
    CLIENT_ITERATIONS_MAX,
    ClientExchange,
    Mechanism,
    ScramCredential,
    ScramError,
    ServerExchange,
    credential_of,
    keys_of,
    salted_password,
)
from tests.harness.seed import seeded

VECTORS = [
    pytest.param(
        "sha1",
        b"n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        id="RFC 5802",
    ),
    pytest.param(
        "sha256",
        b"n=user,r=rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        id="RFC 7677",
    ),
]

SALT = b"a salt of no great length"
RANDOM = bytes(range(24))


@pytest.mark.parametrize(("digest", "bare", "server_nonce", "salt", "final", "last"), VECTORS)
def test_the_server_speaks_as_the_rfcs(
    digest: str, bare: bytes, server_nonce: str, salt: str, final: bytes, last: bytes
) -> None:
    salted = salted_password("pencil", b64decode(salt), 4_096, digest)
    credential = credential_of(salted, b64decode(salt), 4_096, digest)
    server = ServerExchange(digest)
    assert server.first(b"n,," + bare) == "user"
    challenge = server.challenge(credential, RANDOM)
    client_nonce = bare.partition(b",r=")[2].decode()
    assert challenge.startswith(f"r={client_nonce}".encode())
    server._whole_nonce = client_nonce + server_nonce
    server._challenge = f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()
    assert server.final(final) == last


@pytest.mark.parametrize(("digest", "bare", "server_nonce", "salt", "final", "last"), VECTORS)
def test_the_client_speaks_as_the_rfcs(
    digest: str, bare: bytes, server_nonce: str, salt: str, final: bytes, last: bytes
) -> None:
    client = ClientExchange("user", digest, RANDOM)
    client._nonce = bare.partition(b",r=")[2].decode()
    client._bare = bare
    challenge = client.challenged(f"r={client._nonce}{server_nonce},s={salt},i=4096".encode())
    salted = salted_password("pencil", challenge.salt, challenge.iterations, digest)
    assert client.final(challenge, salted) == final
    client.verify(last)
    with pytest.raises(ScramError, match="does not know the keys"):
        client.verify(last[:-2] + b"x=")


def credential(
    password: str = "secret", mechanism: Mechanism = Mechanism.SHA_512
) -> ScramCredential:
    digest = mechanism.digest
    return credential_of(salted_password(password, SALT, 4_096, digest), SALT, 4_096, digest)


class Login:
    """One login. A test can change its messages before they arrive."""

    def __init__(self, user: str = "shop", password: str = "secret") -> None:
        self.client = ClientExchange(user, "sha512", RANDOM)
        self.server = ServerExchange("sha512")
        self._password = password

    def first(self) -> bytes:
        return self.client.first()

    def last(self, first: bytes) -> bytes:
        """Return the client's last message, after the server has received this first message."""
        self.server.first(first)
        challenge = self.client.challenged(self.server.challenge(credential(), RANDOM[::-1]))
        salted = salted_password(self._password, challenge.salt, challenge.iterations, "sha512")
        return self.client.final(challenge, salted)

    def run(self) -> str:
        self.client.verify(self.server.final(self.last(self.first())))
        return self.server.user


@pytest.mark.parametrize("user", ["shop", "a,b", "a=b", "=2C", "=", "é", "a=3Db,,"])
def test_both_sides_agree(user: str) -> None:
    assert Login(user).run() == user


def test_a_wrong_password_is_refused() -> None:
    with pytest.raises(ScramError, match="the proof is wrong"):
        Login(password="secreT").run()


def refused_first(message: bytes) -> str:
    with pytest.raises(ScramError) as caught:
        ServerExchange("sha512").first(message)
    return str(caught.value)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "channel binding, or has no header"),
        (b"n", "channel binding, or has no header"),
        (b"n,,", "list of key=value pairs"),
        (b"y,,n=a,r=b", "channel binding"),
        (b"p=tls-unique,,n=a,r=b", "channel binding"),
        (b"n,b=c,n=a,r=b", "header of the client's first message is malformed"),
        (b"n,,r=b,n=a", "lacks the user name or the nonce"),
        (b"n,,n=a", "lacks the user name or the nonce"),
        (b"n,,n=,r=b", "the user name is empty"),
        (b"n,,n=a=b,r=b", "not escaped"),
        (b"n,,n=a=2c,r=b", "not escaped"),
        (b"n,,n=a,r=", "characters that are not printable"),
        (b"n,,n=a,r=b c", "characters that are not printable"),
        (b"n,,m=x,n=a,r=b", "lacks the user name or the nonce"),
        (b"n,,n=a,r=b,m=x", "an extension that is not offered"),
        (b"n,,n=a,r=b,tokenauth=true", "an extension that is not offered"),
        (b"n,,n=a\xff,r=b", "not in UTF-8"),
        (b"n,,n=a,r=" + b"b" * 9_000, "a message has 9009 bytes"),
    ],
)
def test_wrong_first_messages(message: bytes, why: str) -> None:
    assert why in refused_first(message)


def test_pitfall_5_the_rights_of_another_user_are_refused() -> None:
    """An authzid can name another user (CVE-2017-12610). An empty authzid, or the user's own name
    with escapes, is allowed."""
    assert "rights of another user" in refused_first(b"n,a=admin,n=shop,r=b")
    assert ServerExchange("sha512").first(b"n,a=shop,n=shop,r=b") == "shop"
    assert ServerExchange("sha512").first(b"n,a=a=2Cb,n=a=2Cb,r=b") == "a,b"


def test_extensions_are_kept_raw_in_the_proof() -> None:
    login = Login()
    login.client._bare += b",x=y=z,trace="
    assert login.run() == "shop"


def test_pitfall_5_the_channel_binding_must_be_that_of_the_first_message() -> None:
    """KAFKA-13464, Redpanda #3015: these servers never compared `c=`."""
    for other in (b"biwsCg==", b64encode(b"y,,"), b64encode(b"n,a=shop,"), b"", b"biw"):
        login = Login()
        last = login.last(login.first()).replace(b"c=biws", b"c=" + other)
        with pytest.raises(ScramError, match=r"channel binding|not in base64"):
            login.server.final(last)


def test_pitfall_4_the_nonce_must_be_that_of_this_login() -> None:
    """CVE-2024-56128. librdkafka's old form, with its nonce twice, is the only other form that is
    accepted."""
    ours = b64encode(RANDOM)
    login = Login()
    last = login.last(login.first())
    whole = last.partition(b",r=")[2].partition(b",p=")[0]
    for other in (
        ours,
        whole[len(ours) :],
        whole[:-1],
        whole + b"x",
        ours + ours + whole,
        b"x" + whole,
    ):
        with pytest.raises(ScramError, match="nonce does not belong to this login"):
            login.server.final(last.replace(b"r=" + whole, b"r=" + other))
    with pytest.raises(ScramError, match="the proof is wrong"):
        login.server.final(last.replace(b"r=" + whole, b"r=" + ours + whole))


def test_pitfall_4_the_old_form_of_librdkafka_logs_in() -> None:
    login = Login()
    login.server.first(login.first())
    told = login.server.challenge(credential(), RANDOM[::-1])
    challenge = login.client.challenged(told)
    twice = type(challenge)(
        b64encode(RANDOM).decode() + challenge.nonce, challenge.salt, challenge.iterations
    )
    salted = salted_password("secret", SALT, 4_096, "sha512")
    login.client.verify(login.server.final(login.client.final(twice, salted)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda last: last[:-8], "not in base64|the proof has"),
        (lambda last: last.partition(b",p=")[0], "list of key=value pairs"),
        (lambda last: last.partition(b",p=")[0] + b",p=", "the proof has 0 bytes, expected 64"),
        (lambda last: last.replace(b",p=", b",m=x,p="), "an extension that is not offered"),
        (lambda last: last.replace(b",p=", b",x=y,p="), "the proof is wrong"),
        (lambda last: last.partition(b",r=")[0] + b",p=YQ==", "channel binding, nonce or proof"),
        (lambda last: b"x=y," + last, "channel binding, nonce or proof"),
        (lambda last: last + b",x=y", "not in base64"),
        (lambda last: last + b"\xff", "not in UTF-8"),
    ],
)
def test_wrong_last_messages(change, why: str) -> None:  # type: ignore[no-untyped-def]
    login = Login()
    last = login.last(login.first())
    with pytest.raises(ScramError, match=why):
        login.server.final(change(last))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"r={}x,s=YQ==,i=4095", "asks for 4095 iterations"),
        (b"r={}x,s=YQ==,i=%d" % (CLIENT_ITERATIONS_MAX + 1), "asks for 1000001 iterations"),
        (b"r={}x,s=YQ==,i=99999999999999999999", "asks for 999999999 iterations"),
        (b"r={}x,s=YQ==,i=0000040960000000", "asks for 000004096 iterations"),
        (b"r={}x,s=YQ==,i=000004096" + b"0" * 5_000, "asks for 000004096 iterations"),
        (b"r={}x,s=YQ==,i=-4096", "iterations"),
        (b"r={}x,s=YQ==,i=", "iterations"),
        (b"r={},s=YQ==,i=4096", "does not begin with the client's nonce"),
        (b"r=x{},s=YQ==,i=4096", "does not begin with the client's nonce"),
        (b"r={}x,s=Y,i=4096", "not in base64"),
        (b"m=x,r={}x,s=YQ==,i=4096", "lacks nonce, salt or iterations"),
        (b"r={}x", "lacks nonce, salt or iterations"),
        (b"", "list of key=value pairs"),
    ],
)
def test_pitfall_10_a_server_cannot_make_our_client_compute_without_end(
    message: bytes, why: str
) -> None:
    """An unlimited number of iterations would block the client, so it checks the server's first
    message."""
    client = ClientExchange("shop", "sha512", RANDOM)
    with pytest.raises(ScramError, match=why):
        client.challenged(message.replace(b"{}", b64encode(RANDOM)))


def test_a_server_that_does_not_know_the_keys_is_not_believed() -> None:
    login = Login()
    last = login.last(login.first())
    true = login.server.final(last)
    login.client.verify(true + b",x=y")
    for other in (b"", b"v=", b"v=AAAA", true[:-4]):
        with pytest.raises(ScramError, match="does not know the keys"):
            login.client.verify(other)
    with pytest.raises(ScramError, match="refuses the login: invalid-proof"):
        login.client.verify(b"e=invalid-proof")


def test_nothing_prints_its_keys() -> None:
    for one in (credential(), keys_of(b"salted", "sha512")):
        assert "key=" not in repr(one)


def garbled(chance: random.Random, message: bytes) -> bytes:
    """Return the message after a few random changes: special characters of SCRAM, deletions, and
    random bytes."""
    found = bytearray(message)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(3):
            case 0:
                found[at:at] = chance.choice([b",", b"=", b"=3D", b"n=", b"\x00", b"\xff", b"a="])
            case 1:
                del found[at : at + chance.randrange(1, 4)]
            case _:
                found[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(found)


@pytest.mark.parametrize("rounds", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_pitfall_8_odd_texts_raise_scram_errors_only(rounds: int) -> None:
    """Redpanda #12042: malformed texts ended the process. A login with a changed message must
    fail."""
    chance = seeded("odd SCRAM texts")
    known = credential()
    salted = salted_password("secret", SALT, 4_096, "sha512")
    for _ in range(rounds):
        client, server = ClientExchange("shop", "sha512", RANDOM), ServerExchange("sha512")
        target = chance.randrange(4)
        try:
            first = client.first()
            server.first(garbled(chance, first) if target == 0 else first)
            told = server.challenge(known, RANDOM)
            challenge = client.challenged(garbled(chance, told) if target == 1 else told)
            last = client.final(challenge, salted)
            changed = garbled(chance, last) if target == 2 else last
            end = server.final(changed)
            assert target != 2 or changed == last
            said = garbled(chance, end) if target == 3 else end
            client.verify(said)
            assert target != 3 or said.partition(b",")[0] == end
        except ScramError:
            pass


def test_pitfall_6_secrets_are_compared_by_one_function() -> None:
    """CVE-2021-38153. Both comparisons of secrets use `is_same`, which accepts texts of any
    length."""
    code = inspect.getsource(scram)
    assert code.count("compare_digest(") == 1 and code.count("is_same(") == 3
    assert scram.is_same(b"one", b"one")
    assert not scram.is_same(b"one", b"on") and not scram.is_same(b"one", b"onf")
