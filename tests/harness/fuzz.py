"""Frames that no client should send: random valid messages, and damaged ones.

The valid messages have every served key and version, with random values, names and numbers of
existing things, and record batches with wrong contents and a correct checksum. Then bytes are
changed, removed or duplicated, and wrong lengths are written. Some frames are only random bytes.
"""

import random
import struct
from collections.abc import Sequence
from typing import Any

from protocol.messages.api import SERVED, ApiKey, request_class
from protocol.messages.headers import encode_request
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.wire.crc32c import crc32c
from protocol.wire.records import Codec, assemble_batch, compress
from protocol.wire.schema import Field
from tests.harness.wire import batch_of
from tests.unit.protocol.examples import Examples

TOPICS = ("fuzz-0", "fuzz-1", "fuzz-2", "fuzz-compacted", "fuzz-new", "__consumer_offsets")
IDS = ("a", "b", "c", "group", "")
SMALL = (-2, -1, 0, 1, 2, 3, 5, 10, 100, 1_000)
WAITS_MS = (-1, 0, 1, 5, 2**31 - 1)

_NAMES = {
    **dict.fromkeys(("topic", "topics", "topic_name", "topic_names", "name", "names"), TOPICS),
    **dict.fromkeys(("group_id", "groups_names", "groups", "group_instance_id"), IDS),
    **dict.fromkeys(("transactional_id", "member_id", "key"), IDS),
    "protocol_type": ("consumer",),
}
_WAITS = {"max_wait_ms", "timeout_ms", "transaction_timeout_ms", "rebalance_timeout_ms"}

BATCHES_MAX = 30
"""The most batches of one Produce."""

BOMB_SHARE = 0.003
SHOWER_SHARE = 0.2
"""The share of the requests with a bomb in which every batch is a bomb."""

LENGTHS = (-1, -2, 0, 1, 2**31 - 1, -(2**31), 1 << 20, 1 << 28)


LONG_SHARE = 0.002
LONG_TEXTS = ("x" * 32_700, "x" * 0x7FFF, "ü" * 16_383)
"""Texts of nearly the maximum length: names derived from them must fit as well."""


class Sensible(Examples):
    """Random messages that often refer to existing topics, groups and ids."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance

    def value(self, field: Field, version: int) -> Any:
        pick = self.random
        if field.kind == "string" and pick.random() < LONG_SHARE:
            return pick.choice(LONG_TEXTS)
        if field.kind == "string" and field.name in _NAMES and pick.random() < 0.8:
            return pick.choice(_NAMES[field.name])
        if field.kind == "records":
            return self.batch()
        if field.name in _WAITS:
            return pick.choice(WAITS_MS)
        if field.kind in ("int16", "int32", "int64") and pick.random() < 0.7:
            return pick.choice(SMALL)
        if field.kind == "bytes" and pick.random() < 0.3:
            return bytes(self.batch())
        return super().value(field, version)

    def batch(self) -> bytes:
        """Return a record batch: a valid one, one with wrong contents and a correct checksum, or
        a damaged one."""
        pick = self.random
        values = [pick.choice((None, b"", b"v", bytes(300), bytes(50_000)))] * pick.choice(
            (1, 2, 9)
        )
        batch = batch_of(
            values,
            key=pick.choice((None, b"k", b"")),
            codec=pick.choice(list(Codec)),
            producer_id=pick.choice((-1, -1, 1, pick.randrange(2**60))),
            producer_epoch=pick.choice((0, 0, 1)),
            base_sequence=pick.choice((0, 0, 1, 2**31 - 1)),
        )
        kind = pick.random()
        if kind < 0.5:
            # Change any bytes from the attributes on, and correct the checksum, so that the broker
            # does not reject the batch at once.
            for _ in range(pick.randint(1, 3)):
                at = pick.randrange(21, min(len(batch), 90))
                batch[at] = pick.randrange(256)
            struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
        elif kind < 0.6:
            batch = bytearray(mutated(bytes(batch), pick))
        return bytes(batch)


class Fuzz:
    """A source of frames."""

    def __init__(self, chance: random.Random, *, has_bombs: bool = True) -> None:
        self.random = chance
        self._sensible = Sensible(chance)
        self._keys = sorted(SERVED)
        self._bombs = bombs() if has_bombs else []
        self.key_counts: dict[int, int] = {}

    def connection(self) -> list[bytes]:
        """The frames of one connection: some valid ones, and often an invalid one after them."""
        frames = [self.sensible() for _ in range(self.random.randint(1, 10))]
        kind = self.random.random()
        if kind < 0.6:
            body = mutated(frames.pop()[4:], self.random)
            size = len(body)
            if self.random.random() < 0.1:
                size = self.random.choice((0, 1, 7, size + 9, *LENGTHS))
            frames.append(struct.pack(">i", size) + body)
        elif kind < 0.75:
            frames.append(self.headed_noise())
        elif kind < 0.8:
            frames.append(self.random.randbytes(self.random.randint(1, 2_000)))
        return frames

    def sensible(self) -> bytes:
        """A well-formed request of a random key and version."""
        key = self.random.choice(self._keys)
        if self.random.random() < 0.15:
            key = ApiKey.PRODUCE
        self.key_counts[key] = self.key_counts.get(key, 0) + 1
        cls = request_class(key)
        version = self.random.choice([one for one in SERVED[key] if one in cls.valid_versions])
        if key == ApiKey.PRODUCE and version < 3:
            version = 9
        message = self._produce() if self._is_plain_produce(key) else self._message(cls, version)
        client_id = self.random.choice(LONG_TEXTS) if self.random.random() < LONG_SHARE else "fuzz"
        return encode_request(message, version, self.random.randrange(2**31), client_id)

    def _is_plain_produce(self, key: int) -> bool:
        return key == ApiKey.PRODUCE and self.random.random() < 0.7

    def _message(self, cls: Any, version: int) -> Any:
        return self._sensible.message(cls, version)

    def _produce(self) -> ProduceRequest:
        pick = self.random
        count = pick.choice((1, 1, 1, 2, 5, BATCHES_MAX))
        name = pick.choice(TOPICS)
        batches = [self._sensible.batch() for _ in range(count)]
        if self._bombs and pick.random() < BOMB_SHARE:
            name = "fuzz-compacted"
            batches[pick.randrange(count) :] = [pick.choice(self._bombs)]
            if pick.random() < SHOWER_SHARE:
                batches = [pick.choice(self._bombs) for _ in range(count)]
        data = [
            PartitionProduceData(index=pick.choice((0, 0, 1)), records=batch) for batch in batches
        ]
        topic = TopicProduceData(name=name, partition_data=data)
        return ProduceRequest(acks=pick.choice((-1, 1)), timeout_ms=100, topic_data=[topic])

    def headed_noise(self) -> bytes:
        """Return a frame whose header leads to a handler, with random bytes behind it."""
        key = self.random.choice(self._keys)
        version = self.random.choice(list(SERVED[key]))
        body = self.random.randbytes(self.random.randint(0, 300))
        head = struct.pack(">hhih", key, version, 1, 1) + b"f"
        return struct.pack(">i", len(head) + len(body)) + head + body


def bombs() -> list[bytes]:
    """Return batches that are small on the network but expensive to decompress for a compacted
    topic.

    Some have one large record, some have many small records, and some have a megabyte of compressed
    frames without content.
    """
    codecs = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
    long = [bytes(batch_of([bytes(40 << 20)], codec=codec)) for codec in codecs]
    many = [bytes(batch_of([b""] * 99_000, codec=codec)) for codec in codecs]
    nothing = {codec: bytes(compress(codec, b"")) for codec in codecs}
    parts = [batch_around(one * (1_000_000 // len(one)), codec) for codec, one in nothing.items()]
    return [*long, *many, *parts]


def batch_around(payload: bytes, codec: Codec) -> bytes:
    """Return a batch whose header declares one record compressed by `codec`, with a correct
    checksum."""
    batch = assemble_batch(payload, record_count=1, base_timestamp_ms=0, max_timestamp_ms=0)
    batch[22] |= codec
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Return a body with a few random changes: bytes changed, removed, duplicated or added."""
    out = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(out)) if out else 0
        kind = chance.randrange(6)
        if kind == 0 and out:
            out[position] = chance.randrange(256)
        elif kind == 1 and out:
            out[position : position + 4] = struct.pack(">i", chance.choice(LENGTHS))
        elif kind == 2:
            del out[position:]
        elif kind == 3:
            out[position:position] = chance.randbytes(chance.randint(1, 30))
        elif kind == 4:
            out[position:position] = out[position : position + chance.randint(1, 200)]
        else:
            out[position:position] = b"\xff" * chance.randint(1, 12)
    return bytes(out)


def cut(frames: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Split the bytes into pieces of random sizes."""
    data = b"".join(frames)
    pieces = []
    while data:
        size = chance.choice((1, 5, 100, 5_000, len(data)))
        pieces.append(data[:size])
        data = data[size:]
        if len(pieces) > 20:
            pieces.append(data)
            break
    return pieces
