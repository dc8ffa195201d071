"""SCRAM (RFC 5802, RFC 7677): both sides of a login that does not send the password.

This module is pure: random bytes are arguments. The result of the slow key derivation, which
`salted_password` computes, is an argument too. The server never derives a key from a password, so a
login costs it only two HMACs and a hash.

Both sides keep the raw texts, because the proofs are computed over them. Every deviation from the
RFC raises ScramError, whose text is only for the log of this side. There is one exception:
librdkafka before 2.6.1 repeats its nonce in the last message, and the server accepts exactly that.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from enum import IntEnum

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""The numbers of iterations that a credential can have, as in Kafka."""

ITERATIONS_DEFAULT = 8_192

CLIENT_ITERATIONS_MAX = 1_000_000
"""The most iterations that a server can make this client compute: half a second."""

ITERATIONS_DIGITS_MAX = 9
"""The most digits of a number of iterations. Longer numbers are refused before they are parsed."""

SALT_BYTES = 24
NONCE_BYTES = 24

MESSAGE_BYTES_MAX = 8 << 10
"""The most bytes of one message. Names have at most 64 characters, so real messages are far
smaller.
"""

_PRINTABLE = re.compile(r"[!-+\--~]+")
"""The permitted characters of a nonce: printable ASCII without the comma."""

_WRONG_ESCAPE = re.compile(r"=(?!2C|3D)")

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


class ScramError(Exception):
    """The other side deviates from the protocol, or its proof is wrong."""


class Mechanism(IntEnum):
    """A SASL mechanism, with its number in Kafka's records and requests."""

    sasl_name: str
    digest: str

    def __new__(cls, number: int, sasl_name: str = "", digest: str = "") -> Mechanism:
        member = int.__new__(cls, number)
        member._value_ = number
        member.sasl_name = sasl_name
        member.digest = digest
        return member

    @property
    def digest_bytes(self) -> int:
        """The size of the mechanism's keys in bytes."""
        return hashlib.new(self.digest).digest_size

    SHA_256 = 1, "SCRAM-SHA-256", "sha256"
    SHA_512 = 2, "SCRAM-SHA-512", "sha512"


MECHANISMS = {one.sasl_name: one for one in Mechanism}


@dataclass(frozen=True, slots=True, repr=False)
class ScramKeys:
    """The keys that both sides derive from a password."""

    client_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """The data that a server stores instead of a user's password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    is_enrolment: bool = False
    """True for the credential of a join file. Its user may only replace it by another one."""
    expires_at_ms: int = 0
    """The wall time in milliseconds from which logins with it fail; 0 without an end."""

    def has_expired(self, now_ms: int) -> bool:
        """Return True if logins with the credential fail at this wall time."""
        return bool(self.expires_at_ms) and now_ms >= self.expires_at_ms


def salted_password(password: str, salt: bytes, iterations: int, digest: str) -> bytes:
    """Derive the key from a password. The derivation takes milliseconds.

    The result is enough to log in, so it must stay as secret as the password.
    """
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


def keys_of(salted: bytes, digest: str) -> ScramKeys:
    """Return the keys of a salted password."""
    return ScramKeys(_mac(salted, b"Client Key", digest), _mac(salted, b"Server Key", digest))


def credential_of(salted: bytes, salt: bytes, iterations: int, digest: str) -> ScramCredential:
    """Return the data that the server stores for a salted password."""
    keys = keys_of(salted, digest)
    return ScramCredential(salt, _hash(keys.client_key, digest), keys.server_key, iterations)


class ServerExchange:
    """The server's side of one login: `first`, then `challenge`, then `final`."""

    def __init__(self, digest: str) -> None:
        self.user = ""
        """The name in the client's first message; empty before that."""
        self._digest = digest

    def first(self, message: bytes) -> str:
        """Read the client's first message. Return the name of the user."""
        text = _text_of(message)
        header, bare = _split_header(text)
        _, authzid = header.split(",")[:2]
        fields = _fields(bare)
        if len(fields) < 2 or fields[0][0] != "n" or fields[1][0] != "r":
            raise ScramError("the client's first message lacks the user name or the nonce")
        if any(key == "m" or (key, value) == ("tokenauth", "true") for key, value in fields):
            raise ScramError("the first message asks for an extension that is not offered")
        self.user = _unescaped(fields[0][1])
        if authzid and _unescaped(authzid.removeprefix("a=")) != self.user:
            raise ScramError("the login asks for the rights of another user")
        self._nonce = _checked_nonce(fields[1][1])
        self._header, self._bare = header.encode(), bare.encode()
        return self.user

    def challenge(self, credential: ScramCredential, random: bytes) -> bytes:
        """Return the server's first message. `random` are `NONCE_BYTES` that are used only here."""
        self._credential = credential
        self._whole_nonce = self._nonce + b64encode(random).decode()
        self._challenge = (
            f"r={self._whole_nonce},s={b64encode(credential.salt).decode()}"
            f",i={credential.iterations}"
        ).encode()
        return self._challenge

    def final(self, message: bytes) -> bytes:
        """Check the client's proof. Return the server's last message."""
        text = _text_of(message)
        without_proof, mark, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        if not mark or len(fields) < 2 or fields[0][0] != "c" or fields[1][0] != "r":
            raise ScramError("the client's last message lacks channel binding, nonce or proof")
        if any(key == "m" for key, _ in fields):
            raise ScramError("the last message asks for an extension that is not offered")
        if _decoded(fields[0][1]) != self._header:
            raise ScramError("the channel binding differs from the first message's")
        # The second form is the one of librdkafka before 2.6.1 (librdkafka #4895).
        if fields[1][1] not in (self._whole_nonce, self._nonce + self._whole_nonce):
            raise ScramError("the nonce does not belong to this login")
        digest, credential = self._digest, self._credential
        proof = _decoded(proof_text)
        signed = b",".join((self._bare, self._challenge, without_proof.encode()))
        signature = _mac(credential.stored_key, signed, digest)
        if len(proof) != len(signature):
            raise ScramError(f"the proof has {len(proof)} bytes, expected {len(signature)}")
        if not is_same(_hash(_xor(proof, signature), digest), credential.stored_key):
            raise ScramError("the proof is wrong")
        return b"v=" + b64encode(_mac(credential.server_key, signed, digest))


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server's first message, as the client needs it."""

    nonce: str
    salt: bytes
    iterations: int


class ClientExchange:
    """The client's side of one login: `first`, `challenged`, `final`, and then `verify`."""

    def __init__(self, user: str, digest: str, random: bytes) -> None:
        """`random` are `NONCE_BYTES` that are used only here."""
        self._digest = digest
        self._nonce = b64encode(random).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}".encode()

    def first(self) -> bytes:
        """Return the client's first message."""
        return b"n,," + self._bare

    def challenged(self, message: bytes) -> Challenge:
        """Read the server's first message. The caller derives the salted password from it."""
        fields = _fields(_text_of(message))
        if [key for key, _ in fields[:3]] != ["r", "s", "i"]:
            raise ScramError("the server's first message lacks nonce, salt or iterations")
        nonce, salt, iterations = (value for _, value in fields[:3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not begin with the client's nonce")
        # A number is refused by its length first, because it can have any number of zeros in front.
        shown = iterations[:ITERATIONS_DIGITS_MAX]
        if (
            shown != iterations
            or not shown.isdecimal()
            or not ITERATIONS_MIN <= int(shown) <= CLIENT_ITERATIONS_MAX
        ):
            raise ScramError(
                f"the server asks for {shown} iterations,"
                f" expected {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX}"
            )
        self._challenge = message
        return Challenge(_checked_nonce(nonce), _decoded(salt), int(shown))

    def final(self, challenge: Challenge, salted: bytes) -> bytes:
        """Return the client's last message, with the proof that it has the password."""
        digest = self._digest
        keys = keys_of(salted, digest)
        without_proof = b"c=" + b64encode(b"n,,") + b",r=" + challenge.nonce.encode()
        signed = b",".join((self._bare, self._challenge, without_proof))
        self._expected = b"v=" + b64encode(_mac(keys.server_key, signed, digest))
        stored_key = _hash(keys.client_key, digest)
        proof = _xor(keys.client_key, _mac(stored_key, signed, digest))
        return without_proof + b",p=" + b64encode(proof)

    def verify(self, message: bytes) -> None:
        """Check the server's last message. Only a server that knows the user's keys can send it."""
        if message.startswith(b"e="):
            reason = message[2:66].decode("ascii", "replace")
            raise ScramError(f"the server refuses the login: {reason}")
        if not is_same(message.partition(b",")[0], self._expected):
            raise ScramError("the server does not know the keys of this user")


def is_same(secret: bytes, other: bytes) -> bool:
    """Compare secrets in a time that does not depend on their content (CVE-2021-38153)."""
    return hmac.compare_digest(secret, other)


def _text_of(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(
            f"a message has {len(message)} bytes, expected at most {MESSAGE_BYTES_MAX}"
        )
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramError("a message is not in UTF-8") from error


def _split_header(text: str) -> tuple[str, str]:
    """Split the first message into its GS2 header, with the comma at its end, and the rest."""
    flag, _, rest = text.partition(",")
    authzid, mark, bare = rest.partition(",")
    if flag != "n" or not mark:
        raise ScramError("the first message asks for channel binding, or has no header")
    if authzid and not authzid.startswith("a="):
        raise ScramError("the header of the client's first message is malformed")
    return f"n,{authzid},", bare


def _fields(text: str) -> list[tuple[str, str]]:
    """Split `key=value` pairs. A value can have further equals signs."""
    found = []
    for one in text.split(","):
        key, mark, value = one.partition("=")
        if not key or not mark:
            raise ScramError("a message is not a list of key=value pairs")
        found.append((key, value))
    return found


def _unescaped(name: str) -> str:
    """Return a user's name without the escapes `=2C` and `=3D`."""
    if _WRONG_ESCAPE.search(name):
        raise ScramError("the user name has an equals sign that is not escaped")
    found = name.replace("=2C", ",").replace("=3D", "=")
    if not found:
        raise ScramError("the user name is empty")
    return found


def _checked_nonce(nonce: str) -> str:
    if not _PRINTABLE.fullmatch(nonce):
        raise ScramError("a nonce has characters that are not printable")
    return nonce


def _decoded(text: str) -> bytes:
    found = b64decode(text) if _BASE64.fullmatch(text) else b""
    # Bits behind the last byte must be zero, so that every value has one spelling.
    if b64encode(found).decode() != text:
        raise ScramError("a value is not in base64")
    return found


def _mac(key: bytes, text: bytes, digest: str) -> bytes:
    return hmac.digest(key, text, digest)


def _hash(text: bytes, digest: str) -> bytes:
    return hashlib.new(digest, text).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
