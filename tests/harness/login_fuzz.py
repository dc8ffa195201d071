"""Frames of clients that have not logged in: steps of a login in any order, requests that need a
login, and damaged ones."""

from __future__ import annotations

import base64
import random
import struct

from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import encode_request
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.wire.schema import Message
from tests.harness.fuzz import LENGTHS, Fuzz, mutated

POOL_COUNT = 2_000
"""The number of requests of each kind from which frames are made. To make a new request for each
frame would take longer than to serve it."""

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-512", "PLAIN", "", "scram-sha-512")
USERS = ("shop", "root", "collector.web", "none", "", "=2C=3D", "=", "ü" * 90, "x" * 5_000)
CHANNELS = ("n,,", "n,,", "n,,", "y,,", "p=tls-unique,,", "n,a=root,", "n", ",,", "")
NONCES = ("rOprNGfwEbeRWgbNEkqO", "rOprNGfwEbeRWgbNEkqO", "", "a,b", "\0", "é", "n" * 4_000)
EXTENSIONS = ("", "", "", ",m=x", ",tokenauth=true", "," * 50)
PROOFS = (
    *(base64.b64encode(bytes(size)).decode() for size in (64, 64, 32, 0, 3, 4_096)),
    "not base64",
    "====",
)


class LoginFuzz:
    """A source of frames. Each connection has a few of them, each with its length in front."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance
        fuzz = Fuzz(chance, has_bombs=False)
        makers = (self.versions, self.handshake, self.first, self.final, fuzz.sensible)
        self._pools = [[make() for _ in range(POOL_COUNT)] for make in makers]

    def connection(self) -> list[bytes]:
        """Return the frames of one connection, often with damaged ones among them."""
        pick = self.random
        kind = pick.random()
        if kind < 0.4:
            frames = self._login()
        elif kind < 0.7:
            frames = [pick.choice(pick.choice(self._pools)) for _ in range(pick.randint(1, 6))]
        else:
            frames = [*self._login()[: pick.randint(0, 3)], pick.choice(self._pools[-1])]
        if pick.random() < 0.5:
            at = pick.randrange(len(frames))
            frames[at] = self._damaged(frames[at])
        return frames

    def _login(self) -> list[bytes]:
        skipped = 0 if self.random.random() < 0.7 else 1
        return [self.random.choice(pool) for pool in self._pools[skipped:-1]]

    def versions(self) -> bytes:
        request = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
        return self._encoded(request, (0, 1, 2, 3))

    def handshake(self) -> bytes:
        pick = self.random
        mechanism = "SCRAM-SHA-512" if pick.random() < 0.7 else pick.choice(MECHANISMS)
        return self._encoded(SaslHandshakeRequest(mechanism=mechanism), (1, 1, 1, 0))

    def first(self) -> bytes:
        """Return the first message of an exchange."""
        pick = self.random
        channel, user, nonce = pick.choice(CHANNELS), pick.choice(USERS), pick.choice(NONCES)
        return self._message(f"{channel}n={user},r={nonce}{pick.choice(EXTENSIONS)}")

    def final(self, nonce: str = "") -> bytes:
        """Return the last message of an exchange. Without the server's nonce the message has a
        made-up nonce."""
        pick = self.random
        binding = base64.b64encode(pick.choice(CHANNELS).encode()).decode()
        nonce = nonce or pick.choice(NONCES) + pick.choice(NONCES)
        return self._message(f"c={binding},r={nonce},p={pick.choice(PROOFS)}")

    def _message(self, text: str) -> bytes:
        raw = text.encode()
        if self.random.random() < 0.1:
            raw = mutated(raw, self.random)
        return self._encoded(SaslAuthenticateRequest(auth_bytes=raw), (2, 2, 1, 0))

    def _encoded(self, message: Message, versions: tuple[int, ...]) -> bytes:
        version = self.random.choice(versions)
        return encode_request(message, version, self.random.randrange(2**31), "fuzz")

    def _damaged(self, frame: bytes) -> bytes:
        pick = self.random
        kind = pick.random()
        if kind < 0.15:
            return pick.randbytes(pick.randint(1, 300))
        body = mutated(frame[4:], pick)
        size = len(body)
        if kind < 0.3:
            size = pick.choice((0, 1, 7, size + 9, 64 << 10, (64 << 10) + 1, *LENGTHS))
        return struct.pack(">i", size) + body
