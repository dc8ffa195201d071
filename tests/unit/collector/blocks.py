"""Helpers for tests of lines and batches: they make blocks from bytes and decode batches."""

import os
import random

from collector.text.encode import Header, Piece, encode
from collector.text.lines import Block, LineRules, split_lines
from protocol.wire.records import assemble_batch, iterate_records


def seed() -> int:
    """Return the seed for random tests. Set MILLRACE_SEED to repeat a failure."""
    return int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))


def blocks_of(
    data: bytes, start: int = 0, *, limit: int = 1 << 30, cut_cr: bool = True
) -> list[Block]:
    return split_lines(memoryview(data), start, LineRules(limit, cut_cr))


def records_of(
    pieces: list[Piece],
) -> list[tuple[bytes | None, bytes | None, tuple[Header, ...]]]:
    """Return key, value and headers of each record in the encoded batch, decoded by the protocol's
    own decoder."""
    records = encode(pieces)
    batch = assemble_batch(
        records.payload,
        record_count=records.record_count,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
    )
    found = list(iterate_records(memoryview(batch), 1 << 28))
    assert [record.offset for record in found] == list(range(records.record_count))
    return [
        (
            _bytes(record.key),
            _bytes(record.value),
            tuple((name.encode(), bytes(content or b"")) for name, content in record.headers),
        )
        for record in found
    ]


def values_of(pieces: list[Piece]) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value of each record."""
    return [(key, value) for key, value, _ in records_of(pieces)]


def _bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
